// What the broker says for a store that is a log: durability, moves, patience.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

using Payloads = std::vector<std::string>;

class LogTest : public BrokerTest {
   protected:
    LogTest() {
        auto_store_ = true;
        config_.max_inflight = 4;
        start();
    }

    static ConnectOptions persistent() {
        ConnectOptions options;
        options.clean_start = false;
        options.properties.session_expiry_interval = 3600;
        return options;
    }

    void away(ByteView id, ByteView filter = "t") {
        Client& client = connect(id, persistent());
        client.subscribe(filter, Qos::k2);
        client.drop();
    }

    Payloads publish_many(Client& publisher, int count) {
        Payloads payloads;
        for (int i = 0; i < count; ++i) {
            payloads.push_back(std::to_string(i));
            publisher.publish("t", payloads.back(), Qos::k1);
            publisher.next<mqtt::Puback>();
        }
        return payloads;
    }

    void expect_nothing_left() {
        EXPECT_EQ(counters().queued + counters().queued_bytes + counters().inflight, 0u);
        EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
    }
};

// --- moves

TEST_F(LogTest, AllThatIsNeededMovesAndSharesItsCopy) {
    for (const char* id : {"a", "b", "c"}) away(id);
    Payloads sent = publish_many(connect("p"), 50);
    uint64_t up_to = store_.last_id();
    move_log();
    finish_moves();
    EXPECT_EQ(store_.moves(), 1u);
    EXPECT_EQ(store_.copies(), 50u);
    EXPECT_EQ(store_.messages(), 50u);
    for (const StoreRecord& record : store_.delivery_records()) {
        EXPECT_GT(record.message_id, up_to);
    }
    for (const char* id : {"a", "b", "c"}) {
        EXPECT_EQ(resume(id, persistent()).payloads(), sent);
    }
    expect_nothing_left();
}

TEST_F(LogTest, WhatEndsMeanwhileDoesNotMove) {
    away("a");
    publish_many(connect("p"), 50);
    auto_store_ = false;
    move_log(Durability::kDurable, store_.last_id());
    broker_->delete_session("a", now_);
    run();
    auto_store_ = true;
    store_all();
    finish_moves();
    EXPECT_EQ(store_.moves(), 1u);
    expect_nothing_left();
}

TEST_F(LogTest, MovesGoOnInTheMiddleOfADrain) {
    away("s");
    Payloads sent = publish_many(connect("p"), 60);
    auto_fetch_ = false;
    Client& client = resume("s", persistent());
    fetch_some(3);
    run();
    move_log();
    finish_moves();
    // The rest of what was asked for is not there under its old name.
    EXPECT_EQ(store_.moves(), 1u);
    auto_fetch_ = true;
    fetch_some(SIZE_MAX);
    run();
    EXPECT_EQ(client.payloads(), sent);
    EXPECT_EQ(counters().dropped_missing, 0u);
    expect_nothing_left();
}

TEST_F(LogTest, ManyMoveInManyTurns) {
    config_.max_queued_messages = 100000;
    start();
    away("s");
    Client& publisher = connect("p");
    for (int i = 0; i < 10000; ++i) {
        publisher.publish("t", "x", Qos::k1);
        publisher.next<mqtt::Puback>();
    }
    auto_store_ = false;
    move_log();
    size_t turns = 0;
    while (store_.moves() == 0) {
        ASSERT_LE(unstored_.size(), 1u);
        EXPECT_LT(unstored_.front().second.size(), 1u << 20);
        store_some(1);
        run();
        finish_moves();
        ++turns;
    }
    EXPECT_EQ(turns, 3u);
    EXPECT_EQ(store_.copies(), 10000u);
}

TEST_F(LogTest, ANewerMoveReplacesTheOneBefore) {
    away("s");
    Client& publisher = connect("p");
    publish_many(publisher, 9000);
    auto_store_ = false;
    move_log();
    move_log();  // said again
    publisher.publish("t", "last", Qos::k1);
    store_some(2);
    run();
    uint64_t up_to = store_.last_id();
    move_log();
    for (int i = 0; i < 10; ++i) {
        finish_moves();
        store_all();
    }
    for (const StoreRecord& record : store_.delivery_records()) {
        EXPECT_GT(record.message_id, up_to);
    }
    EXPECT_EQ(store_.deliveries(), 9001u);
    EXPECT_EQ(store_.moves(), 1u);
}

TEST_F(LogTest, ReleasesAndReceivedIdentifiersMove) {
    Client* subscriber = &connect("s", persistent());
    subscriber->subscribe("t", Qos::k2);
    Client* publisher = &connect("p", persistent());
    publisher->publish_as(9, "t", "x", Qos::k2);
    publisher->next<mqtt::Pubrec>();
    uint16_t id = subscriber->next<mqtt::Publish>().packet_id;
    subscriber->pubrec(id);
    subscriber->next<mqtt::Pubrel>();
    uint64_t up_to = store_.last_id();
    move_log();
    finish_moves();
    EXPECT_EQ(store_.moves(), 1u);
    ASSERT_EQ(store_.deliveries(), 1u);
    EXPECT_GT(store_.delivery_records()[0].message_id, up_to);
    EXPECT_EQ(store_.delivery_records()[0].delivery.state, DeliveryState::kReceivedByClient);
    restart();
    subscriber = &resume("s", persistent());
    EXPECT_EQ(subscriber->next<mqtt::Pubrel>().packet_id, id);
    subscriber->pubcomp(id);
    publisher = &resume("p", persistent());
    publisher->publish_as(9, "t", "x", Qos::k2, true);
    publisher->next<mqtt::Pubrec>();
    publisher->pubrel(9);
    publisher->next<mqtt::Pubcomp>();
    EXPECT_TRUE(subscriber->nothing());
    expect_nothing_left();
    EXPECT_EQ(store_.received(), 0u);
}

TEST_F(LogTest, WhatIsHandedOverDuringAMoveMovesToo) {
    Client& member = connect("a", persistent());
    member.subscribe("$share/g/t", Qos::k2);
    member.drop();
    Payloads sent = publish_many(connect("p"), 10);
    connect("b", persistent()).subscribe("$share/g/t", Qos::k2);
    Client& other = *std::prev(clients_.end());
    other.drop();
    auto_store_ = false;
    move_log(Durability::kDurable, store_.last_id());
    broker_->delete_session("a", now_);
    run();
    auto_store_ = true;
    store_all();
    finish_moves();
    EXPECT_EQ(store_.moves(), 1u);
    EXPECT_EQ(resume("b", persistent()).payloads(), sent);
    expect_nothing_left();
}

// --- durability

TEST_F(LogTest, TheStrongestRuleThatMatchesDecides) {
    config_.durability = Durability::kAsync;
    start();
    broker_->set_durability_rules({{"fast/#", Durability::kUnlogged},
                                   {"+/safe", Durability::kDurable},
                                   {"+/safe/#", Durability::kAsync}});
    away("s", "#");
    Client& publisher = connect("p");
    for (const char* topic : {"other", "fast/x", "fast/safe"}) {
        publisher.publish(topic, "x", Qos::k1);
        publisher.next<mqtt::Puback>();
    }
    std::vector<Durability> found;
    for (const StoreRecord& record : store_.delivery_records()) found.push_back(record.durability);
    EXPECT_EQ(found, (std::vector<Durability>{Durability::kAsync, Durability::kUnlogged,
                                              Durability::kDurable}));
    // Each log moves alone.
    move_log(Durability::kUnlogged);
    finish_moves();
    EXPECT_EQ(store_.copies(), 1u);
    move_log();
    finish_moves();
    EXPECT_EQ(store_.copies(), 3u);
    restart();
    EXPECT_EQ(resume("s", persistent()).payloads().size(), 3u);
    expect_nothing_left();
}

TEST_F(LogTest, ReceivedIdentifiersAreNeverUnlogged) {
    config_.durability = Durability::kUnlogged;
    start();
    Client& publisher = connect("p", persistent());
    publisher.publish_as(1, "t", "x", Qos::k2);
    publisher.next<mqtt::Pubrec>();
    EXPECT_EQ(store_.received_durability(), Durability::kAsync);
}

// --- patience

TEST_F(LogTest, WhoWaitsTooLongForTheStoreIsToldSo) {
    away("s");
    Client& five = connect("5", persistent());
    Client& three = connect("3", Version::k311);
    auto_store_ = false;
    five.publish_as(1, "t", "1", Qos::k1);
    five.publish_as(2, "t", "2", Qos::k2);
    five.publish_as(3, "nobody", "3", Qos::k2);
    three.publish_as(1, "t", "4", Qos::k1);
    advance(29999ms);
    EXPECT_TRUE(five.nothing());
    advance(1ms);
    auto puback = five.next<mqtt::Puback>();
    EXPECT_EQ(puback.reason, ReasonCode::kQuotaExceeded);
    EXPECT_FALSE(puback.properties.reason_string.value_or("").empty());
    EXPECT_EQ(five.next<mqtt::Pubrec>().reason, ReasonCode::kQuotaExceeded);
    EXPECT_EQ(five.next<mqtt::Pubrec>().reason, ReasonCode::kQuotaExceeded);
    EXPECT_TRUE(three.nothing());
    EXPECT_EQ(counters().publishes_overdue, 3u);
    advance(60s);
    EXPECT_TRUE(five.nothing());
    store_all();
    EXPECT_TRUE(five.nothing());
    three.next<mqtt::Puback>();
    EXPECT_EQ(store_.received(), 0u);
    EXPECT_EQ(counters().pending, 0u);
    five.publish_as(2, "t", "again", Qos::k2);  // its identifier is free
    store_all();
    EXPECT_EQ(five.next<mqtt::Pubrec>().reason, ReasonCode::kSuccess);
}

TEST_F(LogTest, AStoreThatComesBackAgainAndAgainDoesNotMakePatienceLonger) {
    away("s");
    Client& publisher = connect("p");
    auto_store_ = false;
    publisher.publish("t", "1", Qos::k1);
    for (int i = 0; i < 29; ++i) {
        advance(1s);
        broker_->resend_store();
        run();
    }
    EXPECT_TRUE(publisher.nothing());
    advance(1s);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kQuotaExceeded);
}

TEST_F(LogTest, PatienceMayBeEndless) {
    config_.store_patience_ms = 0;
    start();
    away("s");
    Client& publisher = connect("p");
    auto_store_ = false;
    publisher.publish("t", "1", Qos::k1);
    advance(1h);
    EXPECT_TRUE(publisher.nothing());
    store_all();
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
}

// --- load

TEST_F(LogTest, OfAConnectedSessionAllThatWasSentComesAgainInOrder) {
    Client* client = &connect("s", persistent());
    client->subscribe("t", Qos::k2);
    Payloads sent = publish_many(connect("p"), 30);
    EXPECT_EQ(client->packets_waiting(), 4u);
    restart();
    EXPECT_EQ(counters().inflight, 4u);
    EXPECT_EQ(counters().queued, 26u);
    client = &resume("s", persistent());
    EXPECT_TRUE(client->next<mqtt::Publish>().dup);
    client->drop();
    EXPECT_EQ(resume("s", persistent()).payloads(), sent);
    expect_nothing_left();
}

}  // namespace
}  // namespace pgmqtt::broker
