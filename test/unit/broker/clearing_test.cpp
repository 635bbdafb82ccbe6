// pgmqtt.clear_retained(): some in each turn, done when it is stored, told to who listens.
#include "broker/clearing.h"

#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class ClearingTest : public BrokerTest {
   protected:
    ClearingTest() { publisher_ = &connect("publisher"); }

    void retain(const std::string& topic) { publisher_->publish(topic, "v", Qos::k0, true); }

    Client* publisher_;
};

TEST_F(ClearingTest, WhatMatchesIsGoneAndSubscribersHearOfIt) {
    Client& listener = connect("listener");
    for (const char* topic : {"a/1", "a/2", "b/1"}) retain(topic);
    listener.subscribe("#", Qos::k1);
    ASSERT_EQ(listener.payloads(), (std::vector<std::string>{"v", "v", "v"}));
    auto clearing = broker_->begin_clearing("a/+");
    broker_->clear_some(*clearing, now_);
    run();
    store_all();
    EXPECT_TRUE(broker_->clear_some(*clearing, now_));
    EXPECT_EQ(clearing->cleared, 2u);
    EXPECT_EQ(counters().retained, 1u);
    EXPECT_EQ(listener.payloads(), (std::vector<std::string>{"", ""}));
}

TEST_F(ClearingTest, NothingToClearIsDoneAtOnce) {
    retain("a");
    auto clearing = broker_->begin_clearing("b/#");
    EXPECT_TRUE(broker_->clear_some(*clearing, now_));
    EXPECT_EQ(clearing->cleared, 0u);
}

TEST_F(ClearingTest, ItIsDoneWhenItIsStored) {
    retain("a");
    store_all();
    auto_store_ = false;
    auto clearing = broker_->begin_clearing("#");
    EXPECT_FALSE(broker_->clear_some(*clearing, now_));
    run();
    EXPECT_EQ(clearing->cleared, 1u);
    EXPECT_FALSE(broker_->clear_some(*clearing, now_)) << "the store has not said so";
    store_all();
    EXPECT_TRUE(broker_->clear_some(*clearing, now_));
    clearing.reset();
    restart();
    EXPECT_EQ(counters().retained, 0u);
}

TEST_F(ClearingTest, ManyTakeSeveralTurnsAndWhatComesMeanwhileMayStay) {
    constexpr uint64_t kCount = 2500;
    for (uint64_t i = 0; i < kCount; ++i) retain("a/" + std::to_string(i));
    auto clearing = broker_->begin_clearing("a/#");
    EXPECT_FALSE(broker_->clear_some(*clearing, now_));
    run();
    EXPECT_LT(clearing->cleared, kCount);
    retain("b");
    int turns = 1;
    for (; !broker_->clear_some(*clearing, now_) && turns < 100; ++turns) {
        run();
        store_all();
    }
    EXPECT_LT(turns, 100);
    EXPECT_EQ(clearing->cleared, kCount);
    EXPECT_EQ(counters().retained, 1u);
}

TEST_F(ClearingTest, ItWaitsForASlowClient) {
    config_.max_queued_messages = 100;
    start();
    publisher_ = &connect("publisher");
    for (int i = 0; i < 1500; ++i) retain("a/" + std::to_string(i));
    ConnectOptions options;
    options.properties.receive_maximum = 1;
    options.keep_alive = 0;
    Client& slow = connect("slow", options);
    slow.subscribe("t", Qos::k1);
    BatchWriter writer(BatchKind::kPublish);
    for (int i = 0; i < 90; ++i)
        writer.add(PublishRecord{{.topic = "t", .payload = "x", .qos = Qos::k1}});
    std::string bytes(writer.finish(1));
    BatchReader reader(bytes);
    broker_->publish(PublishSource::kCdc, 1, reader, now_);
    run();
    ASSERT_FALSE(broker_->takes_publishes());
    auto clearing = broker_->begin_clearing("a/#");
    EXPECT_FALSE(broker_->clear_some(*clearing, now_));
    EXPECT_EQ(clearing->cleared, 0u);
    slow.payloads();
    ASSERT_TRUE(broker_->takes_publishes());
    broker_->clear_some(*clearing, now_);
    EXPECT_GT(clearing->cleared, 0u);
}

}  // namespace
}  // namespace pgmqtt::broker
