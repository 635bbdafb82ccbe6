#include "broker/route.h"
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class PublishTest : public BrokerTest {};

TEST_F(PublishTest, QosIsTheLowerOfPublishAndGrant) {
    Client& publisher = connect("p");
    for (Qos granted : {Qos::k0, Qos::k1}) {
        for (Version version : {Version::k31, Version::k311, Version::k5}) {
            Client& subscriber = connect("s", version);
            subscriber.subscribe("t", granted);
            for (Qos qos : {Qos::k0, Qos::k1}) {
                publisher.publish("t", "x", qos);
                auto publish = subscriber.next<mqtt::Publish>();
                EXPECT_EQ(publish.topic, "t");
                EXPECT_EQ(publish.payload, "x");
                EXPECT_EQ(publish.qos, std::min(qos, granted));  // [MQTT-3.8.4-8]
                EXPECT_FALSE(publish.dup);
                EXPECT_FALSE(publish.retain);
            }
        }
    }
    EXPECT_EQ(counters().publishes_in, 12u);
    EXPECT_EQ(counters().publishes_out, 12u);
}

TEST_F(PublishTest, Qos1IsAcknowledgedAtOnce) {
    Client& subscriber = connect("s");
    subscriber.subscribe("t");
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1);
    auto puback = publisher.next<mqtt::Puback>();
    EXPECT_EQ(puback.packet_id, 1);
    EXPECT_EQ(puback.reason, ReasonCode::kSuccess);
    publisher.publish("nobody", "x", Qos::k1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kNoMatchingSubscribers);
    Client& older = connect("o", Version::k311);
    older.publish("nobody", "x", Qos::k1);
    EXPECT_EQ(older.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(counters().publishes_refused, 0u);
}

TEST_F(PublishTest, DupIsNotPassedOn) {
    Client& subscriber = connect("s");
    subscriber.subscribe("t", Qos::k1);
    mqtt::Publish publish;
    publish.topic = "t";
    publish.qos = Qos::k1;
    publish.dup = true;
    publish.packet_id = 9;
    connect("p").send(publish);
    EXPECT_FALSE(subscriber.next<mqtt::Publish>().dup);  // [MQTT-3.3.1-3]
}

TEST_F(PublishTest, PropertiesArriveUnchanged) {
    Client& subscriber = connect("s");
    subscriber.subscribe("t");
    mqtt::Properties properties;
    properties.payload_format_indicator = 1;
    properties.content_type = "text/plain";
    properties.response_topic = "r";
    properties.correlation_data = ByteView("\0\1", 2);
    properties.user_properties = {{"z", "1"}, {"a", "2"}, {"z", "1"}, {"", ""}};
    properties.message_expiry_interval = 60;
    mqtt::Properties sent = properties;
    sent.topic_alias = 1;
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k0, false, sent);
    EXPECT_EQ(subscriber.next<mqtt::Publish>().properties, properties);  // [MQTT-3.3.2-17]
    Client& older = connect("o", Version::k311);
    older.subscribe("t");
    publisher.publish("t", "y", Qos::k0, false, sent);
    EXPECT_EQ(older.next<mqtt::Publish>().payload, "y");
}

TEST_F(PublishTest, TopicAliasIsResolvedPerConnection) {
    Client& subscriber = connect("s");
    subscriber.subscribe("#");
    Client& publisher = connect("p");
    mqtt::Properties alias;
    alias.topic_alias = 64;
    publisher.publish("first", "1", Qos::k0, false, alias);
    publisher.publish("", "2", Qos::k0, false, alias);
    publisher.publish("second", "3", Qos::k0, false, alias);
    publisher.publish("", "4", Qos::k0, false, alias);
    for (const char* topic : {"first", "first", "second", "second"}) {
        auto publish = subscriber.next<mqtt::Publish>();
        EXPECT_EQ(publish.topic, topic);
        EXPECT_FALSE(publish.properties.topic_alias);
    }
    Client& other = connect("other");
    other.publish("", "x", Qos::k0, false, alias);
    EXPECT_EQ(other.next<mqtt::Disconnect>().reason, ReasonCode::kTopicAliasInvalid);
}

TEST_F(PublishTest, TopicAliasOutOfRangeIsRefused) {
    for (uint16_t number : {uint16_t{0}, uint16_t{65}}) {
        mqtt::Properties alias;
        alias.topic_alias = number;
        Client& publisher = connect("p");
        publisher.publish("t", "x", Qos::k0, false, alias);  // [MQTT-3.3.2-8] [MQTT-3.3.2-9]
        EXPECT_EQ(publisher.next<mqtt::Disconnect>().reason, ReasonCode::kTopicAliasInvalid);
        EXPECT_TRUE(publisher.closed());
    }
}

TEST_F(PublishTest, DollarTopicsAreRefusedAndTheClientStays) {
    Client& watcher = connect("w");
    watcher.subscribe("$SYS/x/#");
    watcher.subscribe("$SYS/broker/connection/#");
    watcher.subscribe("#");
    Client& five = connect("five");
    five.publish("$SYS/x", "x", Qos::k1);
    EXPECT_EQ(five.next<mqtt::Puback>().reason, ReasonCode::kNotAuthorized);
    five.publish("$x", "x", Qos::k0, true);
    Client& older = connect("older", Version::k311);
    older.publish("$SYS/broker/connection/b/state", "1", Qos::k1, true);
    EXPECT_EQ(older.next<mqtt::Puback>().packet_id, 1);
    EXPECT_TRUE(watcher.nothing());
    EXPECT_FALSE(five.closed());
    EXPECT_FALSE(older.closed());
    EXPECT_EQ(counters().publishes_refused, 3u);
    EXPECT_EQ(counters().retained, 0u);
}

TEST_F(PublishTest, MalformedPublishIsToldAndClosed) {
    Client& client = connect("c");
    client.send_bytes(std::string("\x36\x05\x00\x01t\x00\x01", 7));  // QoS 3 [MQTT-3.3.1-4]
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kMalformedPacket);
    EXPECT_TRUE(client.closed());
    EXPECT_EQ(counters().malformed, 1u);
}

TEST_F(PublishTest, APacketOverOurMaximumIsRefusedByItsHeader) {
    config_.max_packet_size = 1000;
    start();
    Client& client = connect("c");
    client.send_bytes("\x30\xFF\x7F");
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kPacketTooLarge);
    Client& fits = connect("fits");
    fits.publish("t", std::string(1000 - 9, 'x'), Qos::k1);  // 1000 bytes in all
    EXPECT_EQ(fits.next<mqtt::Puback>().packet_id, 1);
}

// Or the transport would run out of room for it, and end before the DISCONNECT is sent.
TEST_F(PublishTest, WhatFollowsAViolationIsTakenAndNotKept) {
    Client& client = connect("c");
    std::string bytes = "\x30\xFF\xFF\xFF\x7F" + std::string(1000, 'x');
    EXPECT_EQ(broker_->received(client.id(), bytes, now_), bytes.size());
    EXPECT_EQ(broker_->received(client.id(), bytes, now_), bytes.size());
    run();
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kPacketTooLarge);
}

TEST_F(PublishTest, TheSizeOfAnIncompletePacketIsExpected) {
    Client& client = connect("c");
    client.send_bytes(ByteView("\x30\x90\x4E\0\1t", 6));
    EXPECT_EQ(client.expected(), 3u + 10000);
    client.send_bytes(std::string(10000 - 3, 'x') + "\x30");  // the next one's size is not known
    EXPECT_EQ(client.expected(), 0u);
}

// Of one receiver and of many, sent now and later.
TEST_F(PublishTest, ALargePayloadStaysWhereItCameIn) {
    for (const char* id : {"one", "two"}) connect(id).subscribe("t", Qos::k1);
    ConnectOptions away;
    away.properties.receive_maximum = 1;
    Client& late = connect("late", away);
    late.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    publisher.publish("t", "first", Qos::k1);
    ASSERT_TRUE(late.next_is<mqtt::Publish>());
    uint16_t unacknowledged = late.next<mqtt::Publish>().packet_id;

    mqtt::Publish packet;
    std::string payload(Route::kKeptPayload, 'x');
    packet.topic = "t";
    packet.qos = Qos::k1;
    packet.packet_id = 7;
    packet.payload = payload;
    std::string bytes;
    mqtt::encode(packet, Version::k5, bytes);
    auto input = std::make_unique<KeptShowing>(bytes);
    std::weak_ptr<std::vector<char>> shown = input->bytes;
    ByteView view(input->bytes->data(), input->bytes->size());
    EXPECT_EQ(broker_->received(publisher.id(), view, now_, input.get()), view.size());
    input.reset();
    EXPECT_FALSE(shown.expired());
    run();
    EXPECT_FALSE(shown.expired());  // one still waits for it
    late.puback(unacknowledged);
    EXPECT_EQ(late.next<mqtt::Publish>().payload, payload);
    EXPECT_TRUE(shown.expired());
}

TEST_F(PublishTest, LargePayloadsReachEveryVersion) {
    std::string payload(100000, 'x');
    payload[50000] = '\0';
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        connect("s" + std::to_string(static_cast<int>(version)), version)
            .subscribe("t", version == Version::k5 ? Qos::k1 : Qos::k0);
    }
    connect("p").publish("t", payload, Qos::k1);
    size_t received = 0;
    for (Client& client : clients_) {
        if (client.packets_waiting() != 1 || client.version() == Version::k5) continue;
        EXPECT_EQ(client.next<mqtt::Publish>().payload, payload);
        ++received;
    }
    EXPECT_EQ(received, 2u);
    auto publish = std::next(clients_.begin(), 2)->next<mqtt::Publish>();
    EXPECT_EQ(publish.payload, payload);
    EXPECT_EQ(publish.packet_id, 1);
}

TEST_F(PublishTest, ManyPacketsInOneReadAreAllProcessed) {
    Client& subscriber = connect("s");
    subscriber.subscribe("t");
    std::string bytes;
    for (int i = 0; i < 100; ++i) {
        std::string payload = std::to_string(i);
        mqtt::Publish publish;
        publish.topic = "t";
        publish.payload = payload;
        mqtt::encode(publish, Version::k5, bytes);
    }
    connect("p").send_bytes(bytes);
    auto payloads = subscriber.payloads();
    ASSERT_EQ(payloads.size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(payloads[static_cast<size_t>(i)], std::to_string(i));
}

TEST_F(PublishTest, NothingBehindADisconnectIsProcessed) {
    Client& subscriber = connect("s");
    subscriber.subscribe("t");
    std::string bytes;
    mqtt::encode(mqtt::Disconnect{}, Version::k5, bytes);
    mqtt::Publish publish;
    publish.topic = "t";
    mqtt::encode(publish, Version::k5, bytes);
    connect("p").send_bytes(bytes);  // [MQTT-3.14.4-1]
    EXPECT_TRUE(subscriber.nothing());
}

TEST_F(PublishTest, AcknowledgementsOfUnknownIdentifiers) {
    Client& client = connect("c");
    client.puback(77);
    EXPECT_TRUE(client.nothing());
    mqtt::Pubrec pubrec;
    pubrec.packet_id = 5;
    client.send(pubrec);
    EXPECT_EQ(client.next<mqtt::Pubrel>().reason, ReasonCode::kPacketIdentifierNotFound);
    mqtt::Pubrel pubrel;
    pubrel.packet_id = 6;
    client.send(pubrel);
    EXPECT_EQ(client.next<mqtt::Pubcomp>().reason, ReasonCode::kPacketIdentifierNotFound);
    mqtt::Pubcomp pubcomp;
    pubcomp.packet_id = 7;
    client.send(pubcomp);
    EXPECT_TRUE(client.nothing());
    EXPECT_FALSE(client.closed());
}

TEST_F(PublishTest, AuthWithoutAMethodIsAProtocolError) {
    Client& client = connect("c");
    mqtt::Auth auth;
    auth.reason = ReasonCode::kContinueAuthentication;
    auth.properties.authentication_method = "x";
    client.send(auth);
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kProtocolError);
}

TEST_F(PublishTest, QuestionsWithoutReadingTheAnswersPauseTheClient) {
    config_.client_buffer = 1000;
    config_.max_packet_size = 1000;
    start();
    Client& client = connect("c");
    client.stall(true);
    std::string pings;
    for (int i = 0; i < 10000; ++i) mqtt::encode(mqtt::Pingreq{}, Version::k5, pings);
    client.send_bytes(pings);
    EXPECT_TRUE(broker_->paused(client.id()));
    EXPECT_LT(broker_->outbox(client.id())->size(), 4000u);
    client.stall(false);
    EXPECT_EQ(client.bytes_not_consumed(), 0u);
    EXPECT_EQ(client.packets_waiting(), 10000u);
}

}  // namespace
}  // namespace pgmqtt::broker
