// Publishes from SQL wait for a client that is slow; nobody waits for one that takes nothing.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

constexpr uint32_t kQueue = 100;

class CongestionTest : public BrokerTest {
   protected:
    CongestionTest() {
        config_.max_queued_messages = kQueue;
        start();
        ConnectOptions options;
        options.properties.receive_maximum = 1;
        options.keep_alive = 0;
        slow_ = &connect("slow", options);
        slow_->subscribe("t", Qos::k1);
    }

    void publish_batch(uint64_t number, size_t count, Qos qos = Qos::k1, size_t padding = 0) {
        BatchWriter writer(BatchKind::kPublish);
        for (size_t i = 0; i < count; ++i) {
            std::string payload = std::to_string(next_++) + std::string(padding, ' ');
            writer.add(PublishRecord{{.topic = "t", .payload = payload, .qos = qos}});
        }
        std::string bytes(writer.finish(number));
        BatchReader reader(bytes);
        broker_->publish(PublishSource::kCdc, number, reader, now_);
        run();
    }

    Client* slow_;
    int next_ = 0;
};

TEST_F(CongestionTest, ABatchIsDoneWhenTheQueueHasRoom) {
    publish_batch(1, kQueue / 2);
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1});
    EXPECT_TRUE(broker_->takes_publishes());
    publish_batch(2, kQueue / 2 - 10);
    ASSERT_GT(counters().queued, kQueue / 2);
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1}) << "it waits for the slow client";
    EXPECT_FALSE(broker_->takes_publishes());

    std::vector<std::string> got = slow_->payloads();  // acknowledges each
    EXPECT_EQ(got.size(), static_cast<size_t>(next_));
    EXPECT_EQ(publishes_done_, (std::vector<uint64_t>{1, 2}));
    EXPECT_TRUE(broker_->takes_publishes());
    EXPECT_EQ(counters().dropped_queue_full, 0u);
}

TEST_F(CongestionTest, NobodyWaitsForAClientThatTakesNothing) {
    publish_batch(1, kQueue - 10);
    ASSERT_FALSE(broker_->takes_publishes());
    advance(6s);
    EXPECT_TRUE(broker_->takes_publishes());
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1});
    publish_batch(2, kQueue);
    EXPECT_TRUE(broker_->takes_publishes()) << "stuck: its queue_policy holds";
    EXPECT_GT(counters().dropped_queue_full, 0u);
}

// However many batches come before the transport has its chance.
TEST_F(CongestionTest, QosZeroWaitsForOutboxesAndIsComplete) {
    config_.client_buffer = 10000;
    start();
    Client& reader = connect("reader");
    reader.subscribe("t");
    reader.stall(true);
    publish_batch(1, 40, Qos::k0, 100);
    EXPECT_TRUE(broker_->takes_publishes());
    publish_batch(2, 300, Qos::k0, 100);  // more than fits
    EXPECT_FALSE(broker_->takes_publishes());
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1});
    reader.stall(false);
    run();
    EXPECT_TRUE(broker_->takes_publishes());
    EXPECT_EQ(publishes_done_, (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(reader.payloads().size(), 340u);
    EXPECT_EQ(counters().dropped_slow_qos0, 0u);

    reader.stall(true);
    publish_batch(3, 300, Qos::k0, 100);
    ASSERT_FALSE(broker_->takes_publishes());
    advance(6s);
    EXPECT_TRUE(broker_->takes_publishes()) << "stuck: it misses what follows";
    publish_batch(4, 300, Qos::k0, 100);
    EXPECT_TRUE(broker_->takes_publishes());
    EXPECT_GT(counters().dropped_slow_qos0, 0u);
}

TEST_F(CongestionTest, AClientThatLeavesIsNotWaitedFor) {
    publish_batch(1, kQueue - 10);
    ASSERT_FALSE(broker_->takes_publishes());
    broker_->disconnected(slow_->id(), now_);
    run();
    EXPECT_TRUE(broker_->takes_publishes());
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1});
}

TEST_F(CongestionTest, AStuckClientThatTakesAgainIsWaitedForAgain) {
    publish_batch(1, kQueue - 10);
    advance(6s);
    ASSERT_TRUE(broker_->takes_publishes());
    slow_->payloads();
    ASSERT_EQ(counters().queued, 0u);
    publish_batch(2, kQueue - 10);
    EXPECT_FALSE(broker_->takes_publishes());
}

}  // namespace
}  // namespace pgmqtt::broker
