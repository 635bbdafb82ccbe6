// Config::max_memory: nothing grows beyond it, and whoever can go on does.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

constexpr uint64_t kMemory = 1 << 20;

class MemoryTest : public BrokerTest {
   protected:
    MemoryTest() {
        config_.max_memory = kMemory;
        config_.client_buffer = 16 << 20;  // so that only max_memory is in the way
        config_.max_inflight = 2000;
        start();
    }

    // Unsent bytes of everybody, each payload counted as often as it stands in an outbox.
    size_t output() {
        size_t sum = 0;
        for (Client& known : clients_) {
            if (base::Outbox* outbox = broker_->outbox(known.id())) sum += outbox->size();
        }
        return sum;
    }

    // Subscribed to `t`, and takes one unacknowledged message at a time.
    Client& slow(ByteView id) {
        ConnectOptions options;
        options.properties.receive_maximum = 1;
        Client& client = connect(id, options);
        client.subscribe("t", Qos::k1);
        return client;
    }
};

TEST_F(MemoryTest, ALongQueueIsFullWhenMemoryIsScarce) {
    Client& subscriber = slow("s");
    Client& publisher = connect("p");
    std::string payload(10000, 'x');
    for (int i = 0; i < 300; ++i) {
        publisher.publish("t", std::to_string(i) + payload, Qos::k1);
        EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
        EXPECT_LE(counters().queued_bytes, kMemory * 7 / 8);
    }
    EXPECT_GT(counters().queued_bytes, kMemory / 2);
    EXPECT_EQ(counters().dropped_queue_full + counters().queued + 1, 300u);
    // The oldest went, the newest is there.
    std::vector<std::string> got = subscriber.payloads();
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.size(), 300 - counters().dropped_queue_full);
    EXPECT_TRUE(got.back().starts_with("299x"));
    EXPECT_EQ(counters().queued, 0u);
}

TEST_F(MemoryTest, OneLongQueueDoesNotCostOthersTheirs) {
    slow("s");
    Client& publisher = connect("p");
    std::string payload(10000, 'x');
    for (int i = 0; i < 300; ++i) publisher.publish("t", payload, Qos::k1);
    ConnectOptions options;
    options.properties.receive_maximum = 1;
    Client& other = connect("o", options);
    other.subscribe("u", Qos::k1);
    for (int i = 0; i < 10; ++i) publisher.publish("u", std::to_string(i), Qos::k1);
    EXPECT_EQ(other.payloads().size(), 10u);
}

TEST_F(MemoryTest, TheSameMessageInManyQueuesIsOneMessage) {
    constexpr int kSessions = 50;
    for (int i = 0; i < kSessions; ++i) slow("s" + std::to_string(i));
    Client& publisher = connect("p");
    std::string payload(20000, 'x');
    for (int i = 0; i < 10; ++i) publisher.publish("t", payload, Qos::k1);
    EXPECT_EQ(counters().dropped_queue_full, 0u);
    EXPECT_EQ(counters().queued, 9u * kSessions);
}

TEST_F(MemoryTest, RejectTellsThePublisher) {
    config_.queue_policy = QueuePolicy::kReject;
    start();
    slow("s");
    Client& publisher = connect("p");
    std::string payload(10000, 'x');
    size_t refused = 0;
    for (int i = 0; i < 200; ++i) {
        publisher.publish("t", payload, Qos::k1);
        refused += publisher.next<mqtt::Puback>().reason == ReasonCode::kQuotaExceeded;
    }
    EXPECT_EQ(refused + counters().queued + 1, 200u);
    EXPECT_LE(counters().queued_bytes, kMemory * 7 / 8);
}

TEST_F(MemoryTest, Qos0PassesByWhoIsBehind) {
    Client& stalled = connect("s");
    stalled.subscribe("t");
    Client& quick = connect("q");
    quick.subscribe("t");
    stalled.stall(true);
    Client& publisher = connect("p");
    std::string payload(3000, 'x');
    for (int i = 0; i < 2000; ++i) publisher.publish("t", payload);
    EXPECT_LE(output(), kMemory);
    EXPECT_GT(counters().dropped_slow_qos0, 1000u);
    EXPECT_EQ(quick.payloads().size(), 2000u);
    stalled.stall(false);
    EXPECT_EQ(stalled.payloads().size(), 2000 - counters().dropped_slow_qos0);
}

TEST_F(MemoryTest, PublishersWaitWhenItIsFullAndGoOnWhenItIsNot) {
    constexpr size_t kStalled = 100;
    std::vector<Client*> stalled;
    for (size_t i = 0; i < kStalled; ++i) {
        stalled.push_back(&connect("s" + std::to_string(i)));
        stalled.back()->subscribe("t", Qos::k1);
        stalled.back()->stall(true);
    }
    ConnectOptions options;
    options.version = Version::k311;
    options.keep_alive = 1;
    Client& publisher = connect("p", options);
    std::string payload(3000, 'x');
    size_t sent = 0;
    while (publisher.bytes_not_consumed() == 0 && sent < 1000) {
        publisher.publish("t", payload, Qos::k1);
        ++sent;
    }
    EXPECT_TRUE(broker_->paused(publisher.id()));
    EXPECT_LE(output(), kMemory + kStalled * (payload.size() + 20));

    // It gets a message in now and then, which takes no more memory; and is not called silent.
    for (int i = 0; i < 40; ++i) publisher.publish("t", payload, Qos::k1);
    size_t before = publisher.bytes_not_consumed();
    ASSERT_GT(before, payload.size());
    for (int i = 0; i < 100 && publisher.bytes_not_consumed() > 0; ++i) advance(60ms);
    EXPECT_FALSE(publisher.closed());
    EXPECT_EQ(publisher.bytes_not_consumed(), 0u);
    EXPECT_LE(output(), kMemory + kStalled * (payload.size() + 20));

    for (Client* client : stalled) client->stall(false);
    advance(0ms);
    EXPECT_FALSE(broker_->paused(publisher.id()));
    EXPECT_TRUE(broker_->takes_publishes());
}

// Everybody publishes and subscribes, nobody acknowledges before what it publishes is taken: the
// acknowledgements stand behind PUBLISHes that are not read.
TEST_F(MemoryTest, AcknowledgementsBehindPublishesAreReached) {
    constexpr size_t kPeers = 60;
    config_.queue_policy = QueuePolicy::kDropNewest;
    start();
    std::vector<Client*> peers;
    for (size_t i = 0; i < kPeers; ++i) {
        peers.push_back(&connect("c" + std::to_string(i)));
        peers.back()->subscribe("t", Qos::k1);
    }
    std::string payload(3000, 'x');
    for (Client* peer : peers) peer->stall(true);
    for (int round = 0; round < 20; ++round) {
        for (Client* peer : peers) peer->publish("t", payload, Qos::k1);
    }
    size_t waiting = 0;
    for (Client* peer : peers) waiting += peer->bytes_not_consumed();
    EXPECT_GT(waiting, 0u);
    EXPECT_LE(output(), kMemory + kPeers * (payload.size() + 100));
    for (Client* peer : peers) peer->stall(false);
    advance(0ms);
    for (int i = 0; i < 100; ++i) advance(60ms);
    for (Client* peer : peers) {
        EXPECT_EQ(peer->bytes_not_consumed(), 0u);
        EXPECT_FALSE(broker_->paused(peer->id()));
    }
}

TEST_F(MemoryTest, RetainedMessagesDoNotCount) {
    Client& publisher = connect("p");
    std::string payload(10000, 'x');
    for (int i = 0; i < 200; ++i) {
        publisher.publish("r/" + std::to_string(i), payload, Qos::k0, true);
        store_done(stored_.rbegin()->first);
    }
    Client& subscriber = slow("s");
    for (int i = 0; i < 20; ++i) publisher.publish("t", payload, Qos::k1);
    EXPECT_EQ(counters().dropped_queue_full, 0u);
    EXPECT_EQ(subscriber.payloads().size(), 20u);
}

}  // namespace
}  // namespace pgmqtt::broker
