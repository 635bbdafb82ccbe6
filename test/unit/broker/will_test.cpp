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

    uint8_t refusal(ByteView topic, Version version) {
        ConnectOptions options;
        options.version = version;
        options.will.emplace();
        options.will->topic = topic;
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

TEST_F(WillTest, Qos2WillsComeExactlyOnce) {
    watcher_->subscribe("will", Qos::k2);
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        with_will("c", version, Qos::k2).drop();
        auto publish = watcher_->next<mqtt::Publish>();
        EXPECT_EQ(publish.qos, Qos::k2);
        watcher_->complete(publish.packet_id);
    }
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

// The matrix of delay, expiry and what happens meanwhile.
class WillDelayTest : public WillTest {
   protected:
    WillDelayTest() { auto_store_ = true; }

    static ConnectOptions delayed(uint32_t delay, uint32_t expiry) {
        ConnectOptions options;
        options.clean_start = false;
        if (expiry > 0) options.properties.session_expiry_interval = expiry;
        options.will.emplace();
        options.will->topic = "will";
        options.will->payload = "gone";
        options.will->qos = Qos::k1;
        if (delay > 0) options.will->properties.will_delay_interval = delay;
        return options;
    }

    static ConnectOptions without_will(bool clean_start) {
        ConnectOptions options = delayed(0, 20);
        options.will.reset();
        options.clean_start = clean_start;
        return options;
    }

    // True once.
    bool came() { return watcher_->payloads() == Payloads{"gone"}; }
};

TEST_F(WillDelayTest, AtOnceWhenTheSessionEnds) {
    connect("c", delayed(10, 0)).drop();
    EXPECT_TRUE(came());  // [MQTT-3.1.2-8]: session end comes before the delay
}

TEST_F(WillDelayTest, NeverEarlyAndOnce) {
    connect("c", delayed(10, 20)).drop();
    advance(9999ms);
    EXPECT_TRUE(watcher_->nothing());
    advance(1ms);
    EXPECT_TRUE(came());
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
}

TEST_F(WillDelayTest, AtSessionExpiryWhenThatIsEarlier) {
    connect("c", delayed(10, 5)).drop();
    advance(4999ms);
    EXPECT_TRUE(watcher_->nothing());
    advance(1ms);
    EXPECT_TRUE(came());
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
}

TEST_F(WillDelayTest, NeverWhenTheClientResumesInTime) {
    connect("c", delayed(10, 20)).drop();
    advance(3s);
    resume("c", without_will(false));  // [MQTT-3.1.3-9]
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
}

TEST_F(WillDelayTest, AtOnceWhenACleanStartEndsTheSession) {
    connect("c", delayed(10, 20)).drop();
    advance(3s);
    connect("c", without_will(true));
    EXPECT_TRUE(came());
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
}

TEST_F(WillDelayTest, TakeOver) {
    connect("a", delayed(10, 0));
    connect("a", without_will(false));
    EXPECT_TRUE(came());  // the session ended
    connect("b", delayed(0, 20));
    resume("b", without_will(false));
    EXPECT_TRUE(came());  // no delay
    connect("c", delayed(10, 20));
    resume("c", without_will(false));
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
    connect("d", delayed(10, 20));
    connect("d", without_will(true));
    EXPECT_TRUE(came());
}

TEST_F(WillDelayTest, DisconnectWithWillStartsTheDelay) {
    mqtt::Disconnect disconnect;
    disconnect.reason = ReasonCode::kDisconnectWithWill;
    connect("c", delayed(10, 20)).send(disconnect);
    advance(9s);
    EXPECT_TRUE(watcher_->nothing());
    advance(1s);
    EXPECT_TRUE(came());
}

TEST_F(WillDelayTest, ANormalDisconnectTakesItBack) {
    connect("c", delayed(10, 20)).send(mqtt::Disconnect{});
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
    EXPECT_EQ(store_.sessions(), 0u);
}

TEST_F(WillDelayTest, SurvivesARestart) {
    connect("c", delayed(10, 100)).drop();
    advance(3s);
    restart(2s);
    rewatch();
    advance(4s);
    EXPECT_TRUE(watcher_->nothing());
    advance(1s);
    EXPECT_TRUE(came());
    restart();
    rewatch();
    advance(60s);
    EXPECT_TRUE(watcher_->nothing());
}

TEST_F(WillDelayTest, OfAClientThatWasConnectedWhenTheServerDied) {
    ConnectOptions at_once = delayed(0, 100);
    at_once.will->retain = true;
    connect("a", at_once);
    connect("b", delayed(10, 100));
    restart(60s);
    rewatch();
    EXPECT_TRUE(came());  // it stays retained for who comes later
    advance(9s);
    EXPECT_TRUE(watcher_->nothing());
    advance(1s);  // disconnected since the start
    EXPECT_TRUE(came());
}

TEST_F(WillDelayTest, AtShutDownADelayedOneIsLeftToTheNextStart) {
    connect("a", delayed(0, 100));
    connect("b", delayed(10, 100));
    broker_->shut_down(now_);
    run();
    EXPECT_EQ(watcher_->next<mqtt::Publish>().payload, "gone");
    EXPECT_EQ(watcher_->next<mqtt::Disconnect>().reason, ReasonCode::kServerShuttingDown);
    restart(60s);
    rewatch();
    EXPECT_TRUE(watcher_->nothing());  // both came, the second before anybody was there
    EXPECT_TRUE(store_.session("b").session.will.topic.empty());
    restart(60s);
}

TEST_F(WillDelayTest, AnEmptyRetainedWillClears) {
    Client& publisher = connect("p");
    publisher.publish("will", "old", Qos::k1, true);
    watcher_->payloads();
    ConnectOptions options = delayed(0, 20);
    options.will->payload = "";
    options.will->retain = true;
    connect("c", options).drop();
    EXPECT_EQ(watcher_->payloads(), Payloads{""});
    EXPECT_EQ(store_.retained(), 0u);
}

}  // namespace
}  // namespace pgmqtt::broker
