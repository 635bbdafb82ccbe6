// What ends by itself costs nothing before its time, and no turn too much when it comes.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

constexpr uint64_t kSlice = 5000;  // of expiry.cpp
constexpr uint64_t kBlock = 256;   // of BlockQueue

class ExpiryTest : public BrokerTest {
   protected:
    ExpiryTest() {
        auto_store_ = true;
        config_.max_queued_messages = 100000;
        start();
    }

    static ConnectOptions persistent(uint32_t expiry = 100000) {
        ConnectOptions options;
        options.clean_start = false;
        options.properties.session_expiry_interval = expiry;
        return options;
    }

    void away(ByteView id, uint32_t expiry = 100000, ByteView filter = "t") {
        Client& client = connect(id, persistent(expiry));
        client.subscribe(filter, Qos::k1);
        client.drop();
    }

    void publish(int count, uint32_t expires_in, bool retain = false) {
        if (publisher_ == nullptr) publisher_ = &connect("publisher");
        mqtt::Properties properties;
        if (expires_in > 0) properties.message_expiry_interval = expires_in;
        for (int i = 0; i < count; ++i) {
            std::string topic = retain ? "t/" + std::to_string(i) : "t";
            publisher_->publish(topic, "x", Qos::k1, retain, properties);
            publisher_->next<mqtt::Puback>();
        }
    }

    void pass(std::chrono::milliseconds time) {
        now_.mono += time;
        now_.wall += time;
    }
    void tick() {
        broker_->tick(now_);
        run();
    }
    // Turns until nothing is due.
    int ticks() {
        int count = 0;
        for (; broker_->next_timer() <= now_.mono; ++count) tick();
        return count;
    }

    // With a store that answers late.
    int ticks_with_store() {
        int count = 0;
        auto_store_ = false;
        do {
            count += ticks();
        } while (store_some(1) && (run(), true));
        auto_store_ = true;
        return count;
    }

    Client* publisher_ = nullptr;
};

// --- messages in queues

TEST_F(ExpiryTest, NobodyIsWokenForWhatDoesNotExpire) {
    away("s");
    publish(1, 10);
    publish(3000, 3600);
    pass(10100ms);
    EXPECT_LE(ticks(), 2);
    EXPECT_EQ(counters().dropped_expired, 1u);
    // The rest is not looked at before its time.
    EXPECT_GT(broker_->next_timer(), now_.mono + 3000s);
}

TEST_F(ExpiryTest, ManyMessagesExpireInSlicesThatWaitForTheStore) {
    for (const char* id : {"a", "b", "c"}) away(id);
    publish(12000, 10);
    ASSERT_EQ(counters().queued, 36000u);
    ASSERT_EQ(store_.deliveries(), 36000u);
    auto_store_ = false;
    pass(10100ms);
    uint64_t left = counters().queued;
    for (int slices = 0; left > 0; ++slices) {
        ASSERT_LT(slices, 9);
        ASSERT_LE(broker_->next_timer(), now_.mono);
        tick();
        ASSERT_LE(left - counters().queued, kSlice + kBlock);
        left = counters().queued;
        // Nothing to do before the store has written it; then at once.
        ASSERT_GT(broker_->next_timer(), now_.mono);
        tick();
        ASSERT_EQ(counters().queued, left);
        store_all();
    }
    EXPECT_EQ(counters().dropped_expired, 36000u);
    EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
    EXPECT_EQ(counters().queued_bytes, 0u);
}

TEST_F(ExpiryTest, TheQueueOfASlowClientExpiresToo) {
    config_.max_inflight = 1;
    start();
    Client& slow = connect("slow");
    slow.subscribe("t", Qos::k1);
    publish(1000, 10);
    ASSERT_EQ(counters().queued, 999u);
    pass(10100ms);
    ticks();
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(counters().dropped_expired, 999u);
}

TEST_F(ExpiryTest, WhatIsPublishedWhileOthersExpireStays) {
    away("s");
    publish(15000, 10);
    auto_store_ = false;
    pass(10100ms);
    tick();
    ASSERT_GT(counters().queued, 0u);
    auto_store_ = true;
    publish(1, 50);
    store_all();
    ticks();
    EXPECT_EQ(counters().queued, 1u);
    pass(50100ms);
    ticks();
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(store_.deliveries(), 0u);
}

// --- sessions

TEST_F(ExpiryTest, ASessionWithALongQueueEndsInSlices) {
    away("s", 100);
    publish(25000, 0);
    pass(100s);
    auto_store_ = false;
    tick();
    EXPECT_EQ(counters().sessions, 2u);  // and the publisher
    EXPECT_EQ(counters().queued, 25000 - kSlice);
    EXPECT_EQ(counters().subscriptions, 0u);
    auto_store_ = true;
    store_all();
    ticks();
    EXPECT_EQ(counters().sessions, 1u);
    EXPECT_EQ(counters().sessions_expired, 1u);
    EXPECT_EQ(counters().queued + counters().queued_bytes, 0u);
    EXPECT_TRUE(store_.empty());
}

TEST_F(ExpiryTest, WhoComesBackWhileItsSessionEndsBeginsAnew) {
    away("s", 100);
    publish(25000, 0);
    pass(100s);
    auto_store_ = false;
    tick();
    ASSERT_GT(counters().queued, 0u);
    Client& client = dial("s", persistent());
    EXPECT_TRUE(client.nothing());  // it waits for the end of the old one
    auto_store_ = true;
    ASSERT_GT(ticks_with_store(), 1);
    EXPECT_FALSE(client.next<mqtt::Connack>().session_present);
    EXPECT_EQ(counters().sessions_expired, 1u);
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(store_.sessions(), 1u);
    EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
}

TEST_F(ExpiryTest, ALongQueueThatAClientDoesNotWantEndsInSlicesToo) {
    publish(1, 0);
    enum class By { kCleanStart, kDisconnect, kCommand, kCommandWhileItWaits, kTakeOver };
    for (By by : {By::kCleanStart, By::kDisconnect, By::kCommand, By::kCommandWhileItWaits,
                  By::kTakeOver}) {
        SCOPED_TRACE(static_cast<int>(by));
        away("s");
        publish(20000, 0);
        ASSERT_EQ(counters().queued, 20000u);
        auto_store_ = false;
        ConnectOptions clean = persistent();
        clean.clean_start = by == By::kCleanStart || by == By::kCommandWhileItWaits;
        Client* client = nullptr;
        if (by == By::kDisconnect || by == By::kTakeOver) {
            auto_fetch_ = false;
            ConnectOptions none = persistent(0);
            client = &dial("s", none);
            store_all();
            EXPECT_TRUE(client->next<mqtt::Connack>().session_present);
            if (by == By::kDisconnect) client->send(mqtt::Disconnect{});
            if (by == By::kTakeOver) client = &dial("s", clean);
            auto_fetch_ = true;
        } else if (clean.clean_start) {
            client = &dial("s", clean);
            if (by == By::kCommandWhileItWaits) broker_->delete_session("s", now_);
        } else {
            broker_->delete_session("s", now_);
        }
        run();
        EXPECT_GE(counters().queued, 20000 - kSlice);
        bool waits = by != By::kDisconnect && by != By::kCommand;
        if (waits) {
            EXPECT_EQ(client->packets_waiting(), 0u);
        }
        EXPECT_GT(ticks_with_store(), 2);
        if (waits) {
            EXPECT_FALSE(client->next<mqtt::Connack>().session_present);
            client->drop();
            broker_->delete_session("s", now_);
            run();
        }
        EXPECT_EQ(counters().queued + counters().queued_bytes + counters().inflight, 0u);
        EXPECT_EQ(counters().sessions, 1u);
        EXPECT_EQ(counters().sessions_expired, 0u);
        EXPECT_TRUE(store_.empty());
    }
}

TEST_F(ExpiryTest, ASessionThatDiedInTheMiddleOfItsEndEndsAfterTheRestart) {
    away("s", 100);
    publish(25000, 0);
    publisher_ = nullptr;
    pass(100s);
    auto_store_ = false;
    tick();
    store_some(1);
    ASSERT_EQ(store_.deliveries(), 25000 - kSlice);
    auto_store_ = true;
    restart();
    ticks();
    EXPECT_TRUE(store_.empty());
    EXPECT_EQ(counters().sessions, 0u);
}

TEST_F(ExpiryTest, WhatALongQueueHasForAGroupGoesToAnotherMember) {
    config_.max_queued_bytes = UINT64_MAX;
    start();
    away("a", 100, "$share/g/t");
    publish(5000, 0);
    away("b", 100000, "$share/g/t");
    pass(100s);
    ticks();
    EXPECT_EQ(counters().sessions_expired, 1u);
    EXPECT_EQ(counters().queued, 5000u);
    EXPECT_EQ(store_.deliveries(), 5000u);
    EXPECT_EQ(store_.sessions(), 1u);
}

TEST_F(ExpiryTest, ManySessionsEndInSeveralTurns) {
    constexpr int kSessions = 2000;
    for (int i = 0; i < kSessions; ++i) {
        away("s" + std::to_string(i), 100, "t/" + std::to_string(i));
        clients_.clear();
    }
    pass(100s);
    tick();
    EXPECT_GT(counters().sessions_expired, 100u);
    EXPECT_LT(counters().sessions_expired, 600u);
    EXPECT_LE(broker_->next_timer(), now_.mono);
    ticks();
    EXPECT_EQ(counters().sessions_expired, static_cast<uint64_t>(kSessions));
    EXPECT_TRUE(store_.empty());
}

TEST_F(ExpiryTest, AnExpiredSessionWhoseTurnHasNotComeIsNotResumed) {
    away("s", 100);
    publish(1, 0);
    pass(100s);
    Client& client = dial("s", persistent());
    EXPECT_FALSE(client.next<mqtt::Connack>().session_present);
    EXPECT_EQ(counters().sessions_expired, 1u);
    EXPECT_EQ(counters().queued, 0u);
}

TEST_F(ExpiryTest, AnExpiredSessionKeepsItsNameFromNobody) {
    verdict_.username = "one";
    away("s", 100);
    pass(100s);
    verdict_.username = "two";
    EXPECT_EQ(dial("s", persistent()).next<mqtt::Connack>().code, 0);
}

// --- nothing is left behind

TEST_F(ExpiryTest, WhatEndedEarlyIsNotWaitedFor) {
    ConnectOptions options = persistent(50);
    options.keep_alive = 60;
    for (int i = 0; i < 10; ++i) {
        connect("s", options).drop();
        EXPECT_LE(broker_->next_timer(), now_.mono + 50s);
        broker_->delete_session("s", now_);
        run();
        EXPECT_EQ(broker_->next_timer(), base::kNever);
    }
    accept().drop();  // before its CONNECT
    EXPECT_EQ(broker_->next_timer(), base::kNever);
}

// --- retained messages

TEST_F(ExpiryTest, ManyRetainedMessagesExpireInSlices) {
    constexpr uint64_t kMessages = 25000;
    publish(kMessages, 10, true);
    ASSERT_EQ(store_.retained(), kMessages);
    auto_store_ = false;
    pass(10s);
    tick();
    EXPECT_EQ(counters().retained, kMessages - kSlice);
    EXPECT_GT(broker_->next_timer(), now_.mono);
    auto_store_ = true;
    store_all();
    ticks();
    EXPECT_EQ(counters().retained, 0u);
    EXPECT_EQ(store_.retained(), 0u);
    EXPECT_EQ(counters().dropped_expired, kMessages);
}

// --- delayed wills

TEST_F(ExpiryTest, ManyWillsAreDueInSeveralTurns) {
    constexpr int kClients = 1500;
    Client& watcher = connect("watcher");
    watcher.subscribe("wills");
    ConnectOptions options = persistent(1000);
    options.will.emplace();
    options.will->topic = "wills";
    options.will->payload = "x";
    options.will->properties.will_delay_interval = 10;
    std::vector<Client*> clients;
    for (int i = 0; i < kClients; ++i) clients.push_back(&connect(std::to_string(i), options));
    for (Client* client : clients) client->drop();
    pass(10s);
    tick();
    EXPECT_GT(watcher.packets_waiting(), 100u);
    EXPECT_LT(watcher.packets_waiting(), 600u);
    ticks();
    EXPECT_EQ(watcher.packets_waiting(), static_cast<size_t>(kClients));
}

}  // namespace
}  // namespace pgmqtt::broker
