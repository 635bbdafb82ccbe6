// Receive Maximum, Maximum Packet Size, queues and their policies, expiry.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class FlowTest : public BrokerTest {
   protected:
    Client& window_of(uint16_t size, ByteView id = "s") {
        ConnectOptions options;
        options.properties.receive_maximum = size;
        Client& client = connect(id, options);
        client.subscribe("t", Qos::k1);
        return client;
    }
};

using Payloads = std::vector<std::string>;

TEST_F(FlowTest, NeverMoreInFlightThanTheReceiveMaximum) {
    Client& subscriber = window_of(2);
    Client& publisher = connect("p");
    for (int i = 0; i < 5; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
    EXPECT_EQ(subscriber.packets_waiting(), 2u);  // [MQTT-3.3.4-9]
    EXPECT_EQ(counters().inflight, 2u);
    EXPECT_EQ(counters().queued, 3u);
    publisher.publish("t", "qos 0", Qos::k0);  // passes [MQTT-4.9.0-2]
    EXPECT_EQ(subscriber.packets_waiting(), 3u);
    auto first = subscriber.next<mqtt::Publish>();
    EXPECT_EQ(first.payload, "0");
    subscriber.puback(first.packet_id);
    EXPECT_EQ(subscriber.payloads(), (Payloads{"1", "qos 0", "2", "3", "4"}));
    EXPECT_EQ(counters().inflight, 0u);
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(counters().queued_bytes, 0u);
}

TEST_F(FlowTest, TheServersOwnWindowHoldsFor3Too) {
    config_.max_inflight = 3;
    start();
    Client& subscriber = connect("s", Version::k311);
    subscriber.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    for (int i = 0; i < 10; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
    EXPECT_EQ(subscriber.packets_waiting(), 3u);
    EXPECT_EQ(subscriber.payloads().size(), 10u);
}

TEST_F(FlowTest, IdentifiersAreUniqueWhileInFlight) {
    config_.max_inflight = 65535;
    start();
    Client& subscriber = window_of(65535);
    subscriber.stall(true);
    Client& publisher = connect("p");
    for (int i = 0; i < 70000; ++i) publisher.publish("t", "", Qos::k1);
    subscriber.stall(false);
    std::vector<bool> seen(65536);
    size_t count = 0;
    uint16_t id = 0;
    while (subscriber.packets_waiting() > 0) {
        id = subscriber.next<mqtt::Publish>().packet_id;
        EXPECT_NE(id, 0);
        EXPECT_FALSE(seen[id]);  // [MQTT-2.2.1-4]
        seen[id] = true;
        ++count;
    }
    EXPECT_EQ(count, 65535u);
    subscriber.puback(id);  // the last one first: those in use are skipped
    EXPECT_EQ(subscriber.next<mqtt::Publish>().packet_id, id);
    subscriber.puback(1);
    EXPECT_EQ(subscriber.next<mqtt::Publish>().packet_id, 1);
}

TEST_F(FlowTest, APubackWithAnErrorFreesTheSlotToo) {
    Client& subscriber = window_of(1);
    Client& publisher = connect("p");
    publisher.publish("t", "1", Qos::k1);
    publisher.publish("t", "2", Qos::k1);
    mqtt::Puback puback;
    puback.packet_id = subscriber.next<mqtt::Publish>().packet_id;
    puback.reason = ReasonCode::kUnspecifiedError;
    subscriber.send(puback);
    EXPECT_EQ(subscriber.payloads(), Payloads{"2"});
    subscriber.send(puback);  // of an identifier that is not in flight any more
    EXPECT_TRUE(subscriber.nothing());
}

TEST_F(FlowTest, WhatIsTooLargeForTheClientIsSkippedAndTakesNoSlot) {
    ConnectOptions options;
    options.properties.receive_maximum = 1;
    options.properties.maximum_packet_size = 150;
    Client& subscriber = connect("s", options);
    subscriber.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    std::string large(300, 'x');
    publisher.publish("t", large, Qos::k1);  // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
    publisher.publish("t", "1", Qos::k1);
    publisher.publish("t", large, Qos::k1);  // into the queue
    publisher.publish("t", std::string(5000, 'x'), Qos::k1);
    publisher.publish("t", "2", Qos::k1);
    publisher.publish("t", large, Qos::k0);
    EXPECT_EQ(subscriber.payloads(), (Payloads{"1", "2"}));
    EXPECT_EQ(counters().dropped_too_large, 4u);
    EXPECT_EQ(counters().inflight, 0u);
}

TEST_F(FlowTest, Qos0ToASlowClientIsDroppedAndCounted) {
    config_.client_buffer = 10000;
    start();
    Client& slow = connect("slow");
    Client& fast = connect("fast");
    slow.subscribe("t");
    fast.subscribe("t");
    slow.stall(true);
    Client& publisher = connect("p");
    std::string payload(1000, 'x');
    for (int i = 0; i < 100; ++i) publisher.publish("t", payload);
    EXPECT_EQ(fast.payloads().size(), 100u);
    slow.stall(false);
    size_t got = slow.payloads().size();
    EXPECT_GE(got, 9u);
    EXPECT_LE(got, 11u);
    EXPECT_EQ(counters().dropped_slow_qos0, 100 - got);
}

// 100 messages of 1000 bytes in one turn, each as a packet of its own.
std::string many_at_once() {
    std::string bytes;
    for (int i = 0; i < 100; ++i) {
        mqtt::Publish publish;
        publish.topic = "t";
        std::string payload(1000, 'x');
        publish.payload = payload;
        mqtt::encode(publish, Version::k5, bytes);
    }
    return bytes;
}

TEST_F(FlowTest, Qos0ToAFastClientIsNotDroppedBecauseATurnBringsMuch) {
    config_.client_buffer = 10000;
    start();
    Client& fast = connect("fast");
    fast.subscribe("t");
    Client& publisher = connect("p");
    publisher.send_bytes(many_at_once());
    EXPECT_EQ(fast.payloads().size(), 100u);
    EXPECT_EQ(counters().dropped_slow_qos0, 0u);
    EXPECT_GE(flushes_, 5u);  // else nothing was too much
}

TEST_F(FlowTest, AClientThatTakesNothingIsAskedOnceInATurn) {
    config_.client_buffer = 10000;
    start();
    Client& slow = connect("slow");
    slow.subscribe("t");
    slow.stall(true);
    Client& publisher = connect("p");
    publisher.send_bytes(many_at_once());
    EXPECT_EQ(flushes_, 1u);
    EXPECT_GT(counters().dropped_slow_qos0, 80u);
}

TEST_F(FlowTest, Qos1ToASlowClientIsQueuedAndAllArrives) {
    config_.client_buffer = 5000;
    start();
    Client& slow = window_of(65535);
    slow.stall(true);
    Client& publisher = connect("p");
    Payloads sent;
    for (int i = 0; i < 1000; ++i) {
        sent.push_back(std::to_string(i) + std::string(200, 'x'));
        publisher.publish("t", sent.back(), Qos::k1);
    }
    EXPECT_LT(broker_->outbox(slow.id())->size(), 6000u);
    slow.stall(false);
    EXPECT_EQ(slow.payloads(), sent);
}

TEST_F(FlowTest, DropOldestKeepsTheNewest) {
    config_.max_queued_messages = 2;
    start();
    Client& subscriber = window_of(1);
    Client& publisher = connect("p");
    for (int i = 0; i < 6; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
    EXPECT_EQ(subscriber.payloads(), (Payloads{"0", "4", "5"}));
    EXPECT_EQ(counters().dropped_queue_full, 3u);
    EXPECT_EQ(counters().queued_bytes, 0u);
}

TEST_F(FlowTest, DropNewestKeepsTheOldest) {
    config_.max_queued_messages = 2;
    config_.queue_policy = QueuePolicy::kDropNewest;
    start();
    Client& subscriber = window_of(1);
    Client& publisher = connect("p");
    for (int i = 0; i < 6; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
    EXPECT_EQ(subscriber.payloads(), (Payloads{"0", "1", "2"}));
    EXPECT_EQ(counters().dropped_queue_full, 3u);
}

TEST_F(FlowTest, TheQueueIsBoundedInBytes) {
    config_.max_queued_bytes = 1000;
    start();
    Client& subscriber = window_of(1);
    Client& publisher = connect("p");
    for (int i = 0; i < 10; ++i) publisher.publish("t", std::string(299, 'x'), Qos::k1);
    EXPECT_EQ(counters().queued, 3u);
    EXPECT_EQ(counters().queued_bytes, 900u);
    publisher.publish("t", std::string(2000, 'x'), Qos::k1);  // would not fit an empty queue
    EXPECT_EQ(counters().queued, 3u);
    EXPECT_EQ(subscriber.payloads().size(), 4u);
    EXPECT_EQ(counters().dropped_queue_full, 7u);
}

TEST_F(FlowTest, RejectTellsThePublisherAndDeliversToNobody) {
    config_.max_queued_messages = 1;
    config_.queue_policy = QueuePolicy::kReject;
    start();
    Client& slow = window_of(1, "slow");
    Client& fast = window_of(100, "fast");
    Client& publisher = connect("p");
    for (int i = 0; i < 3; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kQuotaExceeded);
    EXPECT_EQ(fast.payloads(), (Payloads{"0", "1"}));
    Client& older = connect("older", Version::k311);
    older.publish("t", "3", Qos::k1);  // cannot be told: dropped where there is no room
    EXPECT_EQ(older.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(fast.payloads(), Payloads{"3"});
    EXPECT_EQ(slow.payloads(), (Payloads{"0", "1"}));
    EXPECT_EQ(counters().publishes_refused, 1u);
    EXPECT_EQ(counters().dropped_queue_full, 2u);
}

TEST_F(FlowTest, DisconnectEndsTheSlowClient) {
    config_.max_queued_messages = 1;
    config_.queue_policy = QueuePolicy::kDisconnect;
    start();
    Client& slow = window_of(1, "slow");
    Client& fast = window_of(100, "fast");
    Client& publisher = connect("p");
    for (int i = 0; i < 4; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
    slow.next<mqtt::Publish>();
    EXPECT_EQ(slow.next<mqtt::Disconnect>().reason, ReasonCode::kQuotaExceeded);
    EXPECT_TRUE(slow.closed());
    EXPECT_EQ(fast.payloads().size(), 4u);
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(counters().queued_bytes, 0u);
    EXPECT_EQ(counters().inflight, 0u);
}

TEST_F(FlowTest, DisconnectMayHitThePublisherItself) {
    config_.max_queued_messages = 0;
    config_.queue_policy = QueuePolicy::kDisconnect;
    start();
    Client& client = window_of(1);
    client.publish("t", "1", Qos::k1);
    client.publish("t", "2", Qos::k1);
    EXPECT_TRUE(client.closed());
    EXPECT_EQ(counters().clients, 0u);
}

TEST_F(FlowTest, MessagesExpireInTheQueueAndTheRestIsDecremented) {
    Client& subscriber = window_of(1);
    Client& publisher = connect("p");
    mqtt::Properties expiry;
    publisher.publish("t", "blocks", Qos::k1);
    expiry.message_expiry_interval = 5;
    publisher.publish("t", "short", Qos::k1, false, expiry);
    expiry.message_expiry_interval = 60;
    publisher.publish("t", "long", Qos::k1, false, expiry);
    expiry.message_expiry_interval = 0;
    publisher.publish("t", "none", Qos::k1, false, expiry);
    advance(10s);
    now_.wall -= std::chrono::hours(1);  // a jump changes nothing
    subscriber.puback(subscriber.next<mqtt::Publish>().packet_id);
    auto publish = subscriber.next<mqtt::Publish>();
    EXPECT_EQ(publish.payload, "long");
    EXPECT_EQ(publish.properties.message_expiry_interval, 50u);  // [MQTT-3.3.2-6]
    subscriber.puback(publish.packet_id);
    EXPECT_TRUE(subscriber.nothing());  // [MQTT-3.3.2-5]
    EXPECT_EQ(counters().dropped_expired, 2u);
    EXPECT_EQ(counters().queued, 0u);
}

TEST_F(FlowTest, QueuedMessagesKeepPropertiesIdentifiersAndRetainFlag) {
    ConnectOptions options;
    options.properties.receive_maximum = 1;
    Client& subscriber = connect("s", options);
    mqtt::Subscription wanted;
    wanted.retain_as_published = true;
    subscriber.subscribe("t", Qos::k1, wanted, 42);
    Client& publisher = connect("p");
    mqtt::Properties properties;
    properties.user_properties = {{"b", "1"}, {"a", "2"}};
    publisher.publish("t", "1", Qos::k1);
    publisher.publish("t", "2", Qos::k1, true, properties);
    publisher.publish("t", "3", Qos::k1, false, properties);
    properties.subscription_identifiers = {42};
    subscriber.puback(subscriber.next<mqtt::Publish>().packet_id);
    auto second = subscriber.next<mqtt::Publish>();
    EXPECT_EQ(second.properties, properties);
    EXPECT_TRUE(second.retain);
    subscriber.puback(second.packet_id);
    EXPECT_FALSE(subscriber.next<mqtt::Publish>().retain);
}

TEST_F(FlowTest, ALargeQueuedMessageArrivesWhole) {
    Client& subscriber = window_of(1);
    Client& publisher = connect("p");
    std::string large(200000, 'y');
    publisher.publish("t", "1", Qos::k1);
    publisher.publish("t", large, Qos::k1);
    EXPECT_EQ(subscriber.payloads(), (Payloads{"1", large}));
}

}  // namespace
}  // namespace pgmqtt::broker
