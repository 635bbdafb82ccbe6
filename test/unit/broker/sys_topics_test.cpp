// $SYS: who gets what of it and when, and what it leaves alone.
#include "broker/sys_topics.h"

#include <map>

#include "broker_fixture.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

class SysTopicsTest : public BrokerTest {
   protected:
    struct Told {
        std::string payload;
        bool retain;
        Qos qos;
    };

    // All that came, by topic behind `$SYS/broker/`.
    static std::map<std::string, Told> told(Client& client) {
        std::map<std::string, Told> found;
        while (!client.nothing()) {
            auto publish = client.next<mqtt::Publish>();
            EXPECT_TRUE(publish.topic.starts_with("$SYS/broker/")) << publish.topic;
            std::string topic(publish.topic.substr(std::min<size_t>(12, publish.topic.size())));
            EXPECT_TRUE(
                found
                    .emplace(topic, Told{std::string(publish.payload), publish.retain, publish.qos})
                    .second)
                << topic << " came twice";
        }
        return found;
    }
    std::string value(Client& client, const std::string& topic) {
        return told(client)[topic].payload;
    }
    bool timer_runs() {
        return broker_->next_timer() <=
               now_.mono + std::chrono::milliseconds(config_.sys_interval_ms);
    }
    static ConnectOptions persistent() {
        ConnectOptions options;
        options.clean_start = false;
        options.properties.session_expiry_interval = 3600;
        return options;
    }
};

TEST_F(SysTopicsTest, ANewSubscriberGetsTheCurrentValuesAtOnce) {
    connect("other");
    Client& client = connect("a");
    advance(90s);
    EXPECT_EQ(client.subscribe("$SYS/#", Qos::k2), 2);
    auto values = told(client);
    EXPECT_EQ(values.size(), 26u + 27u);
    EXPECT_EQ(values["version"].payload, "pgmqtt version 1.0");
    EXPECT_EQ(values["uptime"].payload, "90 seconds");
    EXPECT_EQ(values["clients/connected"].payload, "2");
    EXPECT_EQ(values["clients/maximum"].payload, "2");
    EXPECT_EQ(values["clients/disconnected"].payload, "0");
    EXPECT_EQ(values["subscriptions/count"].payload, "1");
    EXPECT_EQ(values["load/connections/1min"].payload, "0.49");
    EXPECT_EQ(values["retained messages/count"].payload, "0");
    for (const auto& [topic, one] : values) {
        EXPECT_TRUE(one.retain) << topic;
        EXPECT_EQ(one.qos, Qos::k0) << topic;
    }
}

TEST_F(SysTopicsTest, ThenWhatChangesEachInterval) {
    Client& client = connect("a");
    client.subscribe("$SYS/broker/uptime");
    told(client);
    client.subscribe("$SYS/broker/clients/connected");
    told(client);
    advance(9999ms);
    EXPECT_TRUE(client.nothing());
    advance(1ms);
    auto values = told(client);
    EXPECT_EQ(values.size(), 1u);
    EXPECT_EQ(values["uptime"].payload, "10 seconds");
    EXPECT_FALSE(values["uptime"].retain);
    connect("b");
    advance(10s);
    values = told(client);
    EXPECT_EQ(values.size(), 2u);
    EXPECT_EQ(values["clients/connected"].payload, "2");
}

// What is told to a new subscriber may be news to the old one.
TEST_F(SysTopicsTest, AnotherSubscriberTakesNothingAway) {
    Client& first = connect("a");
    first.subscribe("$SYS/broker/clients/connected");
    EXPECT_EQ(value(first, "clients/connected"), "1");
    Client& second = connect("b");
    second.subscribe("$SYS/broker/clients/connected");
    EXPECT_EQ(value(second, "clients/connected"), "2");
    advance(10s);
    EXPECT_EQ(value(first, "clients/connected"), "2");
    EXPECT_EQ(value(second, "clients/connected"), "2");
    // Back to what was told before, but not to the third.
    Client& third = connect("c");
    third.subscribe("$SYS/broker/clients/connected");
    EXPECT_EQ(value(third, "clients/connected"), "3");
    second.drop();
    advance(10s);
    EXPECT_EQ(value(third, "clients/connected"), "2");
}

TEST_F(SysTopicsTest, WildcardsDoNotMatchIt) {
    Client& client = connect("a");
    advance(10s);  // the time for CONNECT is over
    for (const char* filter : {"#", "+/broker/uptime", "+/#", "$SYS", "$SYSTEM/#", "/#"}) {
        client.subscribe(filter);
        EXPECT_TRUE(client.nothing()) << filter;
    }
    EXPECT_FALSE(timer_runs());
    advance(10s);
    EXPECT_TRUE(client.nothing());
}

TEST_F(SysTopicsTest, WildcardsBehindItDo) {
    Client& client = connect("a");
    for (const char* filter : {"$SYS/broker/clients/+", "$SYS/+/clients/#"}) {
        client.subscribe(filter);
        EXPECT_EQ(told(client).size(), 7u) << filter;
    }
    client.subscribe("$SYS/broker/load/+/received/+");
    EXPECT_EQ(told(client).size(), 9u);
}

TEST_F(SysTopicsTest, NobodyListensNothingRuns) {
    Client& client = connect("a");
    advance(10s);  // the time for CONNECT is over
    EXPECT_EQ(broker_->next_timer(), base::kNever);
    client.subscribe("$SYS/broker/version");
    told(client);
    EXPECT_TRUE(timer_runs());
    advance(10s);  // nothing changed, and yet it is heard
    EXPECT_TRUE(timer_runs());
    client.unsubscribe("$SYS/broker/version");
    advance(10s);
    EXPECT_EQ(broker_->next_timer(), base::kNever);
    client.subscribe("$SYS/broker/version");
    client.drop();
    advance(10s);
    EXPECT_EQ(broker_->next_timer(), base::kNever);
}

TEST_F(SysTopicsTest, NothingIsStoredQueuedOrCounted) {
    auto_store_ = true;
    Client& client = dial("a", persistent());
    client.next<mqtt::Connack>();
    client.subscribe("$SYS/#", Qos::k1);
    told(client);
    uint64_t batches = last_batch_;
    advance(10s);
    EXPECT_FALSE(told(client).empty());
    EXPECT_EQ(last_batch_, batches);
    EXPECT_EQ(counters().retained, 0u);
    EXPECT_EQ(counters().retained_bytes, 0u);
    client.drop();
    batches = last_batch_;
    advance(10s);
    EXPECT_EQ(last_batch_, batches);
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_FALSE(timer_runs());  // who is away does not keep it running
    Client& again = resume("a", persistent());
    EXPECT_TRUE(told(again).empty());
    advance(10s);
    EXPECT_EQ(value(again, "uptime"), "30 seconds");
}

TEST_F(SysTopicsTest, RetainHandlingAndRetainAsPublishedHold) {
    Client& client = connect("a");
    mqtt::Subscription never;
    never.retain_handling = 2;
    never.retain_as_published = true;
    client.subscribe("$SYS/broker/uptime", Qos::k0, never);
    EXPECT_TRUE(client.nothing());
    advance(10s);
    auto values = told(client);
    EXPECT_EQ(values["uptime"].payload, "10 seconds");
    EXPECT_TRUE(values["uptime"].retain);
}

TEST_F(SysTopicsTest, SharedSubscribersTakeTurns) {
    Client& a = connect("a");
    Client& b = connect("b");
    a.subscribe("$share/g/$SYS/broker/uptime");
    b.subscribe("$share/g/$SYS/broker/uptime");
    EXPECT_TRUE(a.nothing() && b.nothing());
    EXPECT_EQ(counters().shared_subscriptions, 2u);
    advance(10s);
    advance(10s);
    EXPECT_EQ(told(a).size(), 1u);
    EXPECT_EQ(told(b).size(), 1u);
    a.unsubscribe("$share/g/$SYS/broker/uptime");
    b.drop();
    EXPECT_EQ(counters().shared_subscriptions, 0u);
}

TEST_F(SysTopicsTest, ZeroTurnsItOffAndAReloadOn) {
    config_.sys_interval_ms = 0;
    start();
    Client& client = connect("a");
    client.subscribe("$SYS/#");
    advance(10s);
    EXPECT_TRUE(client.nothing());
    EXPECT_EQ(broker_->next_timer(), base::kNever);
    config_.sys_interval_ms = 500;
    broker_->configure(config_);
    advance(0ms);
    EXPECT_EQ(told(client).size(), 53u);
    advance(500ms);
    EXPECT_FALSE(told(client).empty());
    config_.sys_interval_ms = 0;
    broker_->configure(config_);
    advance(10s);
    EXPECT_TRUE(client.nothing());
}

TEST_F(SysTopicsTest, OnlySinksThatNameItGetIt) {
    broker_->set_sinks({{1, "#", Qos::k1}, {2, "+/broker/uptime", Qos::k1}});
    advance(0ms);
    Client& client = connect("a");
    client.subscribe("$SYS/broker/uptime");
    advance(10s);
    EXPECT_TRUE(sunk_.empty());
    client.drop();
    advance(10s);
    broker_->set_sinks({{1, "#", Qos::k1}, {3, "$SYS/broker/uptime", Qos::k1}});
    advance(0ms);
    ASSERT_EQ(sunk_.size(), 1u);
    EXPECT_EQ(sunk_[0].sinks, std::vector<uint32_t>{3});
    EXPECT_EQ(sunk_[0].payload, "20 seconds");
    EXPECT_EQ(sunk_[0].client_id, "");
    advance(10s);
    EXPECT_EQ(sunk_.size(), 2u);
}

TEST_F(SysTopicsTest, ClientsCannotPublishToIt) {
    Client& listener = connect("listener");
    listener.subscribe("$SYS/broker/fake");
    listener.subscribe("$other");
    Client& client = connect("a");
    client.publish("$SYS/broker/fake", "x", Qos::k0, true);
    client.publish("$SYS/broker/fake", "x", Qos::k1, true);
    EXPECT_EQ(client.next<mqtt::Puback>().reason, ReasonCode::kNotAuthorized);
    mqtt::Properties alias;
    alias.topic_alias = 1;
    client.publish("$SYS/broker/fake", "x", Qos::k2, false, alias);
    EXPECT_EQ(client.next<mqtt::Pubrec>().reason, ReasonCode::kNotAuthorized);
    client.publish("", "x", Qos::k1, false, alias);
    EXPECT_EQ(client.next<mqtt::Puback>().reason, ReasonCode::kNotAuthorized);

    ConnectOptions with_will;
    with_will.will.emplace();
    with_will.will->topic = "$other";
    EXPECT_NE(dial("b", with_will).next<mqtt::Connack>().code, 0);
    // A bridge's is accepted and never published: see connect.cpp.
    with_will.will->topic = "$SYS/broker/connection/x/state";
    listener.subscribe("$SYS/broker/connection/#");
    Client& bridge = dial("c", with_will);
    EXPECT_EQ(bridge.next<mqtt::Connack>().code, 0);
    bridge.drop();
    EXPECT_TRUE(listener.nothing());
    EXPECT_EQ(counters().retained, 0u);
}

// A slow reader of the first values gets each topic, none twice, and nothing old after new.
TEST_F(SysTopicsTest, AStalledSubscriberGetsTheLatest) {
    config_.client_buffer = 64;
    start();
    Client& client = connect("a");
    client.stall(true);
    mqtt::Subscribe subscribe;
    subscribe.packet_id = 1;
    subscribe.subscriptions.push_back({.filter = "$SYS/#"});
    client.send(subscribe);
    Client& other = connect("b");
    other.subscribe("$SYS/#");
    told(other);
    client.stall(false);
    client.next<mqtt::Suback>();
    EXPECT_EQ(told(client).size(), 53u);
}

TEST_F(SysTopicsTest, CountersBecomeValues) {
    Client& client = connect("a");
    client.publish("t", "12345", Qos::k0, true);
    client.subscribe("t");
    client.next<mqtt::Publish>();
    client.publish("t", "123", Qos::k0);
    client.next<mqtt::Publish>();
    client.subscribe("$SYS/#");
    auto values = told(client);
    EXPECT_EQ(values["publish/messages/received"].payload, "2");
    EXPECT_EQ(values["publish/messages/sent"].payload, "2");
    EXPECT_EQ(values["publish/bytes/received"].payload, "8");
    EXPECT_EQ(values["publish/bytes/sent"].payload, "8");
    EXPECT_EQ(values["messages/received"].payload, "5");  // CONNECT, two of each
    EXPECT_EQ(values["retained messages/count"].payload, "1");
    EXPECT_EQ(values["messages/stored"].payload, "1");
    EXPECT_EQ(values["store/messages/count"].payload, "1");
    EXPECT_NE(values["heap/current"].payload, "");
    EXPECT_GE(std::stoul(values["heap/maximum"].payload),
              std::stoul(values["heap/current"].payload));
}

TEST_F(SysTopicsTest, ExpiredSessionsAreCounted) {
    auto_store_ = true;
    dial("a", persistent()).drop();
    EXPECT_EQ(counters().sessions, 1u);
    advance(3600s);
    EXPECT_EQ(counters().sessions, 0u);
    EXPECT_EQ(counters().sessions_expired, 1u);
}

}  // namespace
}  // namespace pgmqtt::broker
