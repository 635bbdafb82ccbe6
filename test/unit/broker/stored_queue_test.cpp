// Queues that live in the store: what memory keeps of them, how they come back and how they move.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

using Payloads = std::vector<std::string>;

class StoredQueueTest : public BrokerTest {
   protected:
    StoredQueueTest() {
        auto_store_ = true;
        config_.max_inflight = 4;
        start();
    }

    static ConnectOptions persistent(uint16_t receive_maximum = 65535) {
        ConnectOptions options;
        options.clean_start = false;
        options.properties.session_expiry_interval = 3600;
        options.properties.receive_maximum = receive_maximum;
        return options;
    }

    // A session that is away, subscribed to `t`.
    void away(ByteView id, Qos qos = Qos::k2) {
        Client& client = connect(id, persistent());
        client.subscribe("t", qos);
        client.drop();
    }

    void publish(const std::string& payload, Qos qos = Qos::k1,
                 const mqtt::Properties& properties = {}) {
        if (publisher_ == nullptr) publisher_ = &connect("publisher");
        if (qos == Qos::k2) return publisher_->publish_exactly_once("t", payload);
        publisher_->publish("t", payload, qos, false, properties);
        EXPECT_EQ(publisher_->next<mqtt::Puback>().reason, ReasonCode::kSuccess);
    }
    Payloads publish_many(int from, int to) {
        Payloads payloads;
        for (int i = from; i < to; ++i) {
            payloads.push_back(std::to_string(i));
            publish(payloads.back(), i % 3 == 2 ? Qos::k2 : Qos::k1);
        }
        return payloads;
    }

    void restart() {
        publisher_ = nullptr;
        BrokerTest::restart();
    }

    void expect_nothing_left() {
        EXPECT_EQ(counters().queued + counters().queued_bytes + counters().inflight, 0u);
        EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
    }

    Client* publisher_ = nullptr;
};

TEST_F(StoredQueueTest, MemoryKeepsAnEntryOfEachAndNoPayload) {
    constexpr int kMessages = 100000;
    config_.max_queued_messages = kMessages;
    config_.max_queued_bytes = UINT64_MAX;
    // 3.2 MB of entries; the payloads are 100 MB.
    config_.max_memory = 8 << 20;
    start();
    away("s");
    std::string payload(1024, 'x');
    for (int i = 0; i < kMessages; ++i) publish(payload);
    EXPECT_EQ(counters().queued, static_cast<uint64_t>(kMessages));
    EXPECT_GT(counters().queued_bytes, 100000000u);
    EXPECT_EQ(counters().dropped_queue_full + counters().pauses, 0u);
    publish("one more");
    EXPECT_EQ(counters().dropped_queue_full, 1u);  // the oldest
    EXPECT_EQ(store_.deliveries(), static_cast<size_t>(kMessages));
}

TEST_F(StoredQueueTest, ComesBackInOrderAsTheClientTakesIt) {
    away("s");
    Payloads sent = publish_many(0, 200);
    auto_fetch_ = false;
    Client& client = resume("s", persistent());
    EXPECT_TRUE(client.nothing());
    // So many are asked for ahead, not all.
    EXPECT_EQ(unfetched_.size(), 16u);
    fetch_some(2);
    run();
    EXPECT_EQ(client.packets_waiting(), 2u);
    auto_fetch_ = true;
    fetch_some(1);
    run();
    EXPECT_EQ(client.payloads(), sent);
    expect_nothing_left();
}

// What is not stored has no number, and stands between what is looked for by its own.
TEST_F(StoredQueueTest, QoS0InBetweenHidesNothing) {
    away("s");
    Payloads sent = publish_many(0, 100);
    auto_fetch_ = false;
    Client& client = resume("s", persistent());
    Payloads got;
    int zeros = 0;
    for (int i = 0; !(unfetched_.empty() && counters().queued == 0) && i < 1000; ++i) {
        if (i < 50) publisher_->publish("t", "zero", Qos::k0);
        fetch_some(1);
        run();
        for (std::string& payload : client.payloads()) {
            if (payload == "zero")
                ++zeros;
            else
                got.push_back(std::move(payload));
        }
    }
    EXPECT_EQ(got, sent);
    EXPECT_EQ(zeros, 50);
    expect_nothing_left();
}

TEST_F(StoredQueueTest, WhatIsPublishedDuringADrainStandsBehindIt) {
    away("s");
    Payloads sent = publish_many(0, 30);
    auto_fetch_ = false;
    Client& client = resume("s", persistent());
    fetch_some(3);
    run();
    for (std::string& payload : publish_many(30, 60)) sent.push_back(payload);
    auto_fetch_ = true;
    fetch_some(SIZE_MAX);
    run();
    EXPECT_EQ(client.payloads(), sent);
    expect_nothing_left();
}

TEST_F(StoredQueueTest, AReconnectInTheMiddleOfADrainSendsAgainWithDup) {
    away("s");
    Payloads sent = publish_many(0, 40);
    Client* client = &resume("s", persistent());
    for (int i = 0; i < 10; ++i) {
        auto publish = client->next<mqtt::Publish>();
        EXPECT_EQ(publish.payload, sent[static_cast<size_t>(i)]);
        EXPECT_FALSE(publish.dup);
        if (publish.qos == Qos::k1) client->puback(publish.packet_id);
        if (publish.qos == Qos::k2) client->complete(publish.packet_id);
    }
    auto_fetch_ = false;
    client->drop();
    client = &resume("s", persistent());
    client->drop();  // and what it was waiting for comes too late
    fetch_some(SIZE_MAX);
    run();
    auto_fetch_ = true;
    client = &resume("s", persistent());
    for (size_t i = 10; i < 40; ++i) {
        auto publish = client->next<mqtt::Publish>();
        EXPECT_EQ(publish.payload, sent[i]);
        EXPECT_EQ(publish.dup, i < 14) << i;  // max_inflight were sent
        if (publish.qos == Qos::k1) client->puback(publish.packet_id);
        if (publish.qos == Qos::k2) client->complete(publish.packet_id);
    }
    expect_nothing_left();
}

TEST_F(StoredQueueTest, AMessageOfManySessionsIsFetchedOnce) {
    for (const char* id : {"a", "b", "c"}) away(id);
    publish("x");
    auto_fetch_ = false;
    std::vector<Client*> clients;
    for (const char* id : {"a", "b", "c"}) clients.push_back(&resume(id, persistent()));
    EXPECT_EQ(unfetched_.size(), 1u);
    fetch_some(1);
    run();
    for (Client* client : clients) EXPECT_EQ(client->payloads(), Payloads{"x"});
    expect_nothing_left();
}

TEST_F(StoredQueueTest, WhatWasAskedForIsAskedForAgain) {
    away("s");
    Payloads sent = publish_many(0, 10);
    auto_fetch_ = false;
    Client& client = resume("s", persistent());
    EXPECT_EQ(unfetched_.size(), 10u);
    unfetched_.clear();
    broker_->resend_store();
    run();
    EXPECT_EQ(unfetched_.size(), 10u);
    auto_fetch_ = true;
    fetch_some(SIZE_MAX);
    run();
    EXPECT_EQ(client.payloads(), sent);
    expect_nothing_left();
}

TEST_F(StoredQueueTest, WhatSomebodyRemovedIsCountedAndToldOnce) {
    away("s");
    publish_many(0, 5);
    store_.remove_messages();
    Client& client = resume("s", persistent());
    EXPECT_TRUE(client.nothing());
    EXPECT_EQ(counters().dropped_missing, 5u);
    EXPECT_EQ(log_.size(), 1u);
    publish("next");
    EXPECT_EQ(client.payloads(), Payloads{"next"});
    expect_nothing_left();
}

TEST_F(StoredQueueTest, ExpiresWithoutBeingFetched) {
    away("s");
    mqtt::Properties soon;
    soon.message_expiry_interval = 10;
    publish("soon", Qos::k1, soon);
    publish("kept");
    advance(9999ms);
    EXPECT_EQ(counters().queued, 2u);
    advance(101ms);
    EXPECT_EQ(counters().queued, 1u);
    EXPECT_EQ(counters().dropped_expired, 1u);
    EXPECT_EQ(store_.deliveries(), 1u);
    EXPECT_EQ(resume("s", persistent()).payloads(), Payloads{"kept"});
    expect_nothing_left();
}

TEST_F(StoredQueueTest, ExpiryOutlivesARestart) {
    away("s");
    mqtt::Properties soon;
    soon.message_expiry_interval = 10;
    publish("soon", Qos::k1, soon);
    publish("kept");
    publisher_ = nullptr;
    BrokerTest::restart(11s);
    EXPECT_EQ(counters().dropped_expired, 1u);
    EXPECT_EQ(resume("s", persistent()).payloads(), Payloads{"kept"});
}

TEST_F(StoredQueueTest, TheOldestIsDroppedWhereverItIs) {
    config_.max_queued_messages = 20;
    start();
    away("s");
    for (int i = 0; i < 25; ++i) publish(std::to_string(i));
    EXPECT_EQ(counters().dropped_queue_full, 5u);
    auto_fetch_ = false;
    Client& client = resume("s", persistent(1));  // 5 and 6 are near by now
    for (int i = 25; i < 30; ++i) publish(std::to_string(i));
    EXPECT_EQ(counters().dropped_queue_full, 10u);
    auto_fetch_ = true;
    fetch_some(SIZE_MAX);
    run();
    Payloads expected;
    for (int i = 10; i < 30; ++i) expected.push_back(std::to_string(i));
    EXPECT_EQ(client.payloads(), expected);
    expect_nothing_left();
}

TEST_F(StoredQueueTest, SubscriptionIdentifiersComeBack) {
    Client* client = &connect("s", persistent());
    client->subscribe("t", Qos::k1, {}, 7);
    client->drop();
    for (int i = 0; i < 30; ++i) publish(std::to_string(i));
    for (bool restarts : {false, true}) {
        if (restarts) restart();
        client = &resume("s", persistent(1));
        auto first = client->next<mqtt::Publish>();
        EXPECT_EQ(first.properties.subscription_identifiers, std::vector<uint32_t>{7});
        client->puback(first.packet_id);
        EXPECT_EQ(client->next<mqtt::Publish>().properties.subscription_identifiers,
                  std::vector<uint32_t>{7});
        client->drop();
    }
}

TEST_F(StoredQueueTest, ALargeMessageComesAloneAndLimitsWhatIsAhead) {
    config_.client_buffer = 10000;
    start();
    away("s");
    std::string large(6000, 'x');
    for (int i = 0; i < 5; ++i) publish(large);
    publish(std::string(20000, 'y'));
    auto_fetch_ = false;
    Client& client = resume("s", persistent());
    EXPECT_EQ(unfetched_.size(), 1u);
    auto_fetch_ = true;
    fetch_some(1);
    run();
    EXPECT_EQ(client.payloads().size(), 6u);
    expect_nothing_left();
}

TEST_F(StoredQueueTest, ManyDrainsShareTheMemory) {
    config_.max_memory = 1 << 20;
    config_.client_buffer = 1 << 20;
    start();
    for (int i = 0; i < 20; ++i) away("s" + std::to_string(i));
    std::string payload(10000, 'x');
    for (int i = 0; i < 20; ++i) publish(std::to_string(i) + payload);
    auto_fetch_ = false;
    std::vector<Client*> clients;
    for (int i = 0; i < 20; ++i) {
        clients.push_back(&resume("s" + std::to_string(i), persistent()));
    }
    EXPECT_LE(unfetched_.size(), (1u << 20) / 8 / 10000 + 1);
    auto_fetch_ = true;
    fetch_some(SIZE_MAX);
    run();
    for (int round = 0; round < 40; ++round) {
        for (Client* client : clients) {
            while (client->packets_waiting() > 0) {
                client->puback(client->next<mqtt::Publish>().packet_id);
            }
        }
    }
    expect_nothing_left();
}

// --- shared subscriptions

TEST_F(StoredQueueTest, WhatAMemberLeavesInTheStoreGoesToAnother) {
    for (bool stored : {true, false}) {
        for (bool restarts : {false, true}) {
            if (restarts && !stored) continue;
            store_ = {};
            start();
            publisher_ = nullptr;
            Client& member = connect("a", persistent());
            member.subscribe("$share/g/t", Qos::k2);
            member.drop();
            Payloads sent = publish_many(0, 30);
            Client* other = stored ? &connect("b", persistent()) : &connect("b");
            other->subscribe("$share/g/t", Qos::k2);
            size_t written = store_.written_messages();
            broker_->delete_session("a", now_);
            run();
            EXPECT_EQ(store_.written_messages(), written);  // they stay where they are
            if (restarts) {
                restart();
                other = &resume("b", persistent());
            }
            EXPECT_EQ(other->payloads(), sent);
            expect_nothing_left();
        }
    }
}

TEST_F(StoredQueueTest, WhatAMemberLeavesMayGoToOneWithQos0) {
    Client& member = connect("a", persistent());
    member.subscribe("$share/g/t", Qos::k1);
    member.drop();
    publish("x");
    connect("b", persistent()).subscribe("$share/g/t", Qos::k0);
    broker_->delete_session("a", now_);
    run();
    Client& other = *std::prev(clients_.end());
    auto got = other.next<mqtt::Publish>();
    EXPECT_EQ(got.payload, "x");
    EXPECT_EQ(got.qos, Qos::k0);
    expect_nothing_left();
}

// What is left of a member that was not stored itself ends with the next start.
TEST_F(StoredQueueTest, ALeftDeliveryOfAnUnknownSessionEndsAtStart) {
    Client& member = connect("a", persistent());
    member.subscribe("$share/g/t", Qos::k1);
    member.drop();
    publish("x");
    connect("b").subscribe("$share/g/t", Qos::k1);
    auto_fetch_ = false;
    broker_->delete_session("a", now_);
    run();
    EXPECT_EQ(store_.deliveries(), 1u);
    restart();
    expect_nothing_left();
}

// --- QoS 1 leaves before it is stored

TEST_F(StoredQueueTest, WhoeverIsFirstAcknowledgesThePublisher) {
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k2);
    Client& other = connect("o", persistent());
    other.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    auto_store_ = false;
    publisher.publish("t", "1", Qos::k1);
    EXPECT_EQ(subscriber.payloads(), Payloads{"1"});
    EXPECT_TRUE(publisher.nothing());
    EXPECT_EQ(other.payloads(), Payloads{"1"});
    publisher.next<mqtt::Puback>();  // both have it
    EXPECT_EQ(counters().pending, 0u);

    publisher.publish("t", "2", Qos::k1);
    EXPECT_EQ(subscriber.payloads(), Payloads{"2"});
    store_all();
    publisher.next<mqtt::Puback>();  // it is stored
    EXPECT_EQ(other.payloads(), Payloads{"2"});
    EXPECT_TRUE(publisher.nothing());
    store_all();
    expect_nothing_left();
}

TEST_F(StoredQueueTest, ALateAnswerOfTheStoreFinishesNoOtherPublish) {
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    auto_store_ = false;
    publisher.publish("t", "1", Qos::k1);
    EXPECT_EQ(subscriber.payloads(), Payloads{"1"});
    publisher.next<mqtt::Puback>();
    publisher.publish("t", "2", Qos::k1);  // takes the place of the first
    store_some(1);
    run();
    EXPECT_TRUE(publisher.nothing());
    EXPECT_EQ(counters().pending, 1u);
    EXPECT_EQ(subscriber.payloads(), Payloads{"2"});
    publisher.next<mqtt::Puback>();
    publisher.publish("t", "3", Qos::k1);
    store_all();
    publisher.next<mqtt::Puback>();
    EXPECT_EQ(subscriber.payloads(), Payloads{"3"});
    EXPECT_TRUE(publisher.nothing());
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(StoredQueueTest, QosTwoWaitsForTheStoreOnBothSides) {
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k2);
    Client& less = connect("l", persistent());
    less.subscribe("t", Qos::k1);
    Client& publisher = connect("p", persistent());
    broker_->delete_session("s", now_);
    run();
    auto_store_ = false;
    publisher.publish("t", "1", Qos::k2);
    EXPECT_EQ(less.payloads(), Payloads{"1"});
    EXPECT_TRUE(publisher.nothing());  // its identifier is not stored
    store_all();
    publisher.next<mqtt::Pubrec>();
}

TEST_F(StoredQueueTest, ARetainedMessageStillWaitsForTheStore) {
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    auto_store_ = false;
    publisher.publish("t", "1", Qos::k1, true);
    EXPECT_EQ(subscriber.payloads(), Payloads{"1"});
    EXPECT_TRUE(publisher.nothing());
    store_all();
    publisher.next<mqtt::Puback>();
}

TEST_F(StoredQueueTest, ADeliveryThatIsDroppedKeepsNoPublisherWaiting) {
    ConnectOptions options = persistent();
    options.properties.maximum_packet_size = 50;
    connect("s", options).subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    auto_store_ = false;
    publisher.publish("t", std::string(100, 'x'), Qos::k1);
    publisher.next<mqtt::Puback>();
    EXPECT_EQ(counters().dropped_too_large, 1u);
}

}  // namespace
}  // namespace pgmqtt::broker
