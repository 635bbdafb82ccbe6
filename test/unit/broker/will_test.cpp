#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class WillTest : public BrokerTest {
   protected:
    WillTest() { rewatch(); }

    void rewatch() {
        watcher_ = &connect("watcher");
        watcher_->subscribe("will", Qos::k1);
    }

    Client& with_will(ByteView id, Version version = Version::k5, Qos qos = Qos::k0,
                      bool retain = false) {
        ConnectOptions options;
        options.version = version;
        options.will.emplace();
        options.will->topic = "will";
        options.will->payload = "gone";
        options.will->qos = qos;
        options.will->retain = retain;
        return connect(id, options);
    }

    uint8_t refusal(ByteView topic, Version version, Qos qos = Qos::k0) {
        ConnectOptions options;
        options.version = version;
        options.will.emplace();
        options.will->topic = topic;
        options.will->qos = qos;
        Client& client = dial("refused", options);
        return client.packets_waiting() > 0 ? client.next<mqtt::Connack>().code : 0xFF;
    }

    using Payloads = std::vector<std::string>;
    Client* watcher_;
};

TEST_F(WillTest, ComesWhenTheTransportBreaks) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        with_will("c", version).drop();  // [MQTT-3.1.2-8]
        EXPECT_EQ(watcher_->payloads(), Payloads{"gone"});
    }
    EXPECT_EQ(counters().connections_lost, 3u);
}

TEST_F(WillTest, DoesNotComeAfterANormalDisconnect) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        with_will("c", version).send(mqtt::Disconnect{});  // [MQTT-3.14.4-3]
        EXPECT_TRUE(watcher_->nothing());
    }
}

TEST_F(WillTest, ComesAfterADisconnectWithAnyOtherReason) {
    for (ReasonCode reason : {ReasonCode::kDisconnectWithWill, ReasonCode::kUnspecifiedError}) {
        mqtt::Disconnect disconnect;
        disconnect.reason = reason;
        with_will("c").send(disconnect);
        EXPECT_EQ(watcher_->payloads(), Payloads{"gone"});
    }
}

TEST_F(WillTest, ComesAfterProtocolErrorTakeOverAndSilence) {
    with_will("a").send_bytes(std::string("\xF0\x00", 2));
    EXPECT_EQ(watcher_->payloads(), Payloads{"gone"});
    with_will("b");
    connect("b");
    EXPECT_EQ(watcher_->payloads(), Payloads{"gone"});
    ConnectOptions options;
    options.keep_alive = 1;
    options.will.emplace();
    options.will->topic = "will";
    options.will->payload = "silent";
    connect("c", options);
    advance(1500ms);
    EXPECT_EQ(watcher_->payloads(), Payloads{"silent"});
}

TEST_F(WillTest, ComesAtShutDownToThoseStillConnected) {
    Client& client = with_will("c");
    broker_->shut_down(now_);
    run();
    EXPECT_EQ(watcher_->next<mqtt::Publish>().payload, "gone");
    EXPECT_EQ(watcher_->next<mqtt::Disconnect>().reason, ReasonCode::kServerShuttingDown);
    EXPECT_TRUE(client.closed());
}

TEST_F(WillTest, KeepsQosRetainAndProperties) {
    ConnectOptions options;
    options.will.emplace();
    options.will->topic = "will";
    options.will->payload = "gone";
    options.will->qos = Qos::k1;
    options.will->retain = true;
    options.will->properties.content_type = "c";
    options.will->properties.user_properties = {{"b", "1"}, {"a", "2"}, {"b", "1"}};
    options.will->properties.message_expiry_interval = 100;
    mqtt::Properties expected = options.will->properties;
    options.will->properties.will_delay_interval = 60;  // the session ends now: so does the delay
    Client& client = connect("c", options);
    advance(50s);  // expiry counts from the publication
    client.drop();
    auto publish = watcher_->next<mqtt::Publish>();
    EXPECT_EQ(publish.qos, Qos::k1);
    EXPECT_FALSE(publish.retain);
    EXPECT_EQ(publish.properties, expected);
    Client& late = connect("late");
    late.subscribe("will", Qos::k1);
    EXPECT_TRUE(late.next<mqtt::Publish>().retain);  // [MQTT-3.1.2-15]
    ASSERT_EQ(stored_.size(), 1u);
    EXPECT_EQ(stored_[1][0].topic, "will");
}

TEST_F(WillTest, Qos2IsRefusedIn5AndLoweredBefore) {
    EXPECT_EQ(refusal("will", Version::k5, Qos::k2), 0x9B);  // [MQTT-3.2.2-12]
    with_will("c", Version::k311, Qos::k2).drop();
    EXPECT_EQ(watcher_->next<mqtt::Publish>().qos, Qos::k1);
}

TEST_F(WillTest, TopicsThatCannotBePublishedAreRefusedAtConnect) {
    EXPECT_EQ(refusal("$SYS/x", Version::k5), 0x90);
    EXPECT_EQ(refusal("$SYS/x", Version::k311), 5);
    EXPECT_EQ(refusal("a/#", Version::k5), 0x90);
    EXPECT_EQ(refusal("a/#", Version::k311), 0xFF);  // malformed: closed
}

TEST_F(WillTest, ABridgeMayConnectThoughItsWillIsDropped) {
    ConnectOptions options;
    options.version = Version::k311;
    options.will.emplace();
    options.will->topic = "$SYS/broker/connection/x/state";
    connect("bridge", options).drop();
    EXPECT_EQ(counters().publishes_refused, 1u);
}

TEST_F(WillTest, AWillThatDisconnectsASlowClientBringsItsWillToo) {
    config_.queue_policy = QueuePolicy::kDisconnect;
    config_.max_queued_messages = 0;
    start();
    rewatch();
    ConnectOptions options;
    options.properties.receive_maximum = 1;
    options.will.emplace();
    options.will->topic = "will";
    options.will->payload = "second";
    Client& slow = connect("slow", options);
    slow.subscribe("will", Qos::k1);
    connect("p").publish("will", "blocks", Qos::k1);
    with_will("c", Version::k5, Qos::k1).drop();
    EXPECT_TRUE(slow.closed());
    EXPECT_EQ(watcher_->payloads(), (Payloads{"blocks", "gone", "second"}));
}

}  // namespace
}  // namespace pgmqtt::broker
