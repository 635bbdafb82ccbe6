#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class SubscribeTest : public BrokerTest {
   protected:
    void retain(ByteView topic, ByteView payload, Qos qos = Qos::k1) {
        Client& publisher = connect("retainer");
        publisher.publish(topic, payload, qos, true);
        publisher.send(mqtt::Disconnect{});
        broker_->store_done(broker_->store_batch() - 1, now_);
        run();
    }
};

mqtt::Subscription options(bool no_local, bool retain_as_published, uint8_t retain_handling) {
    mqtt::Subscription subscription;
    subscription.no_local = no_local;
    subscription.retain_as_published = retain_as_published;
    subscription.retain_handling = retain_handling;
    return subscription;
}

TEST_F(SubscribeTest, CodesComeInTheOrderOfTheFilters) {
    config_.max_subscriptions = 3;
    start();
    // 3.1 has no code for a refusal; it gets 0x80 as well, which our own decoder would not take.
    for (Version version : {Version::k311, Version::k5}) {
        bool is_v5 = version == Version::k5;
        Client& client = connect("c", version);
        mqtt::Subscribe subscribe;
        subscribe.packet_id = 300;
        const std::pair<const char*, Qos> wanted[] = {{"a", Qos::k2}, {"$share/g/a", Qos::k1},
                                                      {"b", Qos::k0}, {"$SYS/#", Qos::k1},
                                                      {"d", Qos::k1}, {"a", Qos::k0}};
        for (auto [filter, qos] : wanted) {
            mqtt::Subscription subscription;
            subscription.filter = filter;
            subscription.qos = qos;
            subscribe.subscriptions.push_back(subscription);
        }
        client.send(subscribe);
        auto suback = client.next<mqtt::Suback>();
        EXPECT_EQ(suback.packet_id, 300);
        uint8_t quota = is_v5 ? 0x97 : 0x80;
        EXPECT_EQ(suback.codes, (std::vector<uint8_t>{2, 1, 0, quota, quota, 0}));
        EXPECT_EQ(counters().subscriptions, 3u);
    }
}

TEST_F(SubscribeTest, InvalidFiltersCloseTheConnection) {
    for (ByteView filter : {"a+", "#/a", "a/#/b", ""}) {
        Client& client = connect("c");
        mqtt::Subscribe subscribe;
        subscribe.packet_id = 1;
        subscribe.subscriptions.emplace_back().filter = filter;
        client.send(subscribe);
        EXPECT_TRUE(mqtt::is_error(client.next<mqtt::Disconnect>().reason)) << filter;
        EXPECT_TRUE(client.closed());
    }
}

TEST_F(SubscribeTest, ASecondSubscriptionReplacesTheFirst) {
    Client& client = connect("c");
    Client& publisher = connect("p");
    for (Qos qos : {Qos::k1, Qos::k0, Qos::k1}) {
        client.subscribe("t", qos);  // [MQTT-3.8.4-3]
        publisher.publish("t", "x", Qos::k1);
        EXPECT_EQ(client.next<mqtt::Publish>().qos, qos);
        EXPECT_TRUE(client.nothing());
    }
    EXPECT_EQ(counters().subscriptions, 1u);
}

TEST_F(SubscribeTest, OverlappingFiltersGiveOneCopyWithTheHighestQosAndAllIdentifiers) {
    Client& client = connect("c");
    client.subscribe("a/#", Qos::k0, {}, 7);
    client.subscribe("a/+", Qos::k1, {}, 268435455);
    client.subscribe("a/b", Qos::k0);
    client.subscribe("x", Qos::k1, {}, 9);
    connect("p").publish("a/b", "x", Qos::k1);
    auto publish = client.next<mqtt::Publish>();
    EXPECT_EQ(publish.qos, Qos::k1);
    auto identifiers = publish.properties.subscription_identifiers;
    std::sort(identifiers.begin(), identifiers.end());
    EXPECT_EQ(identifiers, (std::vector<uint32_t>{7, 268435455}));
    EXPECT_TRUE(client.nothing());
}

TEST_F(SubscribeTest, IdentifiersBelongToTheirReceiverOnly) {
    Client& one = connect("one");
    Client& two = connect("two");
    Client& none = connect("none");
    one.subscribe("t", Qos::k0, {}, 1);
    two.subscribe("t", Qos::k0, {}, 2);
    none.subscribe("t");
    connect("p").publish("t", "x");
    EXPECT_EQ(one.next<mqtt::Publish>().properties.subscription_identifiers,
              std::vector<uint32_t>{1});
    EXPECT_EQ(two.next<mqtt::Publish>().properties.subscription_identifiers,
              std::vector<uint32_t>{2});
    EXPECT_TRUE(none.next<mqtt::Publish>().properties.subscription_identifiers.empty());
    one.subscribe("t");  // without one now
    connect("q").publish("t", "x");
    EXPECT_TRUE(one.next<mqtt::Publish>().properties.subscription_identifiers.empty());
}

TEST_F(SubscribeTest, NoLocalKeepsTheOwnMessagesAway) {
    Client& client = connect("c");
    client.subscribe("a/+", Qos::k1, options(true, false, 0));
    client.publish("a/b", "own", Qos::k1);  // [MQTT-3.8.3-3]
    EXPECT_EQ(client.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
    connect("p").publish("a/b", "other");
    EXPECT_EQ(client.payloads(), std::vector<std::string>{"other"});
    client.subscribe("a/b", Qos::k0);
    client.publish("a/b", "own", Qos::k0);
    EXPECT_EQ(client.payloads(), std::vector<std::string>{"own"});
}

TEST_F(SubscribeTest, RetainAsPublishedKeepsTheFlag) {
    Client& kept = connect("kept");
    Client& cleared = connect("cleared");
    kept.subscribe("t", Qos::k0, options(false, true, 0));
    cleared.subscribe("t", Qos::k0, options(false, false, 0));
    Client& publisher = connect("p");
    for (bool flag : {true, false}) {
        publisher.publish("t", "x", Qos::k0, flag);
        EXPECT_EQ(kept.next<mqtt::Publish>().retain, flag);  // [MQTT-3.3.1-13]
        EXPECT_FALSE(cleared.next<mqtt::Publish>().retain);  // [MQTT-3.3.1-12]
    }
}

TEST_F(SubscribeTest, UnsubscribeStopsAndAnswersInOrder) {
    Client& client = connect("c");
    client.subscribe("a");
    client.subscribe("b/#");
    mqtt::Unsubscribe unsubscribe;
    unsubscribe.packet_id = 9;
    unsubscribe.filters = {"x", "a", "b", "b/#", "a"};
    client.send(unsubscribe);
    auto unsuback = client.next<mqtt::Unsuback>();
    EXPECT_EQ(unsuback.packet_id, 9);
    EXPECT_EQ(unsuback.codes, (std::vector<uint8_t>{0x11, 0, 0x11, 0, 0x11}));
    connect("p").publish("a", "x");
    EXPECT_TRUE(client.nothing());  // [MQTT-3.10.4-2]
    EXPECT_EQ(counters().subscriptions, 0u);
    Client& older = connect("o", Version::k311);
    older.subscribe("a");
    EXPECT_EQ(older.unsubscribe("a"), 0);
    EXPECT_EQ(older.unsubscribe("a"), 0);  // answered anyway [MQTT-3.10.4-5]
}

TEST_F(SubscribeTest, DollarTopicsAreNotMatchedByLeadingWildcards) {
    Client& client = connect("c");
    EXPECT_EQ(client.subscribe("$data/#"), 0);
    client.subscribe("#");
    client.subscribe("+/x");
    publish_from_sql(PublishSource::kOutbox, 1, {{.topic = "$data/x", .payload = "1"}});
    EXPECT_EQ(client.payloads(), std::vector<std::string>{"1"});
    client.unsubscribe("$data/#");
    publish_from_sql(PublishSource::kOutbox, 2, {{.topic = "$data/x", .payload = "1"}});
    EXPECT_TRUE(client.nothing());  // [MQTT-4.7.2-1]
}

TEST_F(SubscribeTest, RetainedMessagesFollowTheSuback) {
    retain("a/1", "one", Qos::k0);
    retain("a/2", "old");
    retain("a/2", "two");
    retain("b", "no");
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        Client& client = connect("c", version);
        client.subscribe("a/+", Qos::k1);  // reads the SUBACK first
        std::map<std::string, Qos> got;
        while (client.packets_waiting() > 0) {
            auto publish = client.next<mqtt::Publish>();
            EXPECT_TRUE(publish.retain);  // [MQTT-3.3.1-8]
            got[std::string(publish.payload)] = publish.qos;
        }
        EXPECT_EQ(got, (std::map<std::string, Qos>{{"one", Qos::k0}, {"two", Qos::k1}}));
    }
    EXPECT_EQ(counters().retained, 3u);
}

TEST_F(SubscribeTest, RetainHandlingDecides) {
    retain("t", "r");
    Client& client = connect("c");
    client.subscribe("t", Qos::k0, options(false, false, 2));
    EXPECT_TRUE(client.nothing());  // [MQTT-3.3.1-11]
    client.subscribe("t", Qos::k0, options(false, false, 1));
    EXPECT_TRUE(client.nothing());  // not new [MQTT-3.3.1-10]
    client.subscribe("t", Qos::k0, options(false, false, 0));
    EXPECT_EQ(client.payloads().size(), 1u);  // [MQTT-3.3.1-9]
    client.unsubscribe("t");
    client.subscribe("t", Qos::k0, options(false, false, 1));
    EXPECT_EQ(client.payloads().size(), 1u);
}

TEST_F(SubscribeTest, RetainedMessagesCarryIdentifierPropertiesAndRemainingExpiry) {
    mqtt::Properties properties;
    properties.message_expiry_interval = 100;
    properties.user_properties = {{"k", "1"}, {"k", "2"}};
    connect("p").publish("t", "x", Qos::k1, true, properties);
    advance(10500ms);
    Client& client = connect("c");
    client.subscribe("t", Qos::k1, {}, 5);
    auto publish = client.next<mqtt::Publish>();
    properties.message_expiry_interval = 90;  // whole seconds that it waited [MQTT-3.3.2-6]
    properties.subscription_identifiers = {5};
    EXPECT_EQ(publish.properties, properties);
    advance(89500ms);
    EXPECT_EQ(counters().retained, 0u);
    EXPECT_EQ(counters().dropped_expired, 1u);
    EXPECT_EQ(stored_.rbegin()->second.at(0).kind, StoreKind::kUnretain);
    EXPECT_EQ(stored_.rbegin()->second.at(0).topic, "t");
    Client& late = connect("late");
    late.subscribe("t");
    EXPECT_TRUE(late.nothing());
}

TEST_F(SubscribeTest, AnEmptyRetainedMessageClearsAndIsDelivered) {
    Client& watcher = connect("w");
    watcher.subscribe("t");
    retain("t", "x");
    retain("t", "");  // [MQTT-3.3.1-6]
    EXPECT_EQ(watcher.payloads(), (std::vector<std::string>{"x", ""}));
    Client& client = connect("c");
    client.subscribe("t");
    EXPECT_TRUE(client.nothing());
    EXPECT_EQ(counters().retained, 0u);
    size_t stored = stored_.size();
    retain("t", "");
    EXPECT_EQ(stored_.size(), stored);  // nothing to clear, nothing to store
}

TEST_F(SubscribeTest, RetainedLimitsRefuseTheMessage) {
    config_.max_retained = 1;
    start();
    retain("a", "1");
    Client& watcher = connect("w");
    watcher.subscribe("#", Qos::k0, options(false, false, 2));
    Client& five = connect("five");
    five.publish("b", "x", Qos::k1, true);
    EXPECT_EQ(five.next<mqtt::Puback>().reason, ReasonCode::kQuotaExceeded);
    EXPECT_TRUE(watcher.nothing());  // refused as a whole
    Client& older = connect("older", Version::k311);
    older.publish("b", "y", Qos::k1, true);
    EXPECT_EQ(older.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(watcher.payloads(), std::vector<std::string>{"y"});  // cannot be told: just not kept
    EXPECT_EQ(counters().retained, 1u);
    EXPECT_EQ(counters().dropped_retained_limit, 2u);
    EXPECT_EQ(counters().publishes_refused, 1u);
    config_.max_retained = 10;
    config_.max_retained_bytes = 500;
    broker_->configure(config_);
    five.publish("b", std::string(500, 'x'), Qos::k1, true);
    EXPECT_EQ(five.next<mqtt::Puback>().reason, ReasonCode::kQuotaExceeded);
}

TEST_F(SubscribeTest, LoadedRetainedMessagesAreThere) {
    MessageView stored{.topic = "t", .payload = "x", .qos = Qos::k1, .retain = true};
    stored.properties = "";
    stored.received_at = now_.wall;
    broker_->load_retained(stored, now_);
    stored.topic = "old";
    stored.expires_at = now_.wall - 1s;
    broker_->load_retained(stored, now_);
    Client& client = connect("c");
    client.subscribe("#", Qos::k1);
    EXPECT_EQ(client.payloads(), std::vector<std::string>{"x"});
    advance(1ms);
    EXPECT_EQ(counters().retained, 1u);
}

TEST_F(SubscribeTest, TenThousandRetainedAreStreamed) {
    config_.client_buffer = 20000;
    start();
    for (int i = 0; i < 10000; ++i) {
        std::string topic = "s/" + std::to_string(i);
        MessageView stored{.topic = topic,
                           .payload = std::string_view("0123456789"),
                           .qos = Qos::k1,
                           .retain = true};
        stored.properties = "";
        broker_->load_retained(stored, now_);
    }
    for (Qos qos : {Qos::k0, Qos::k1}) {
        Client& client = connect("c");
        client.stall(true);
        mqtt::Subscribe subscribe;
        subscribe.packet_id = 1;
        mqtt::Subscription wanted;
        wanted.filter = "s/#";
        wanted.qos = qos;
        subscribe.subscriptions.push_back(wanted);
        client.send(subscribe);
        EXPECT_LT(broker_->outbox(client.id())->size(), 21000u);
        // What is published meanwhile stands behind them.
        connect("p").publish("s/live", "live", Qos::k0);
        client.stall(false);
        client.next<mqtt::Suback>();
        auto payloads = client.payloads();
        ASSERT_EQ(payloads.size(), 10001u);
        EXPECT_EQ(payloads.back(), "live");
    }
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(counters().queued_bytes, 0u);
}

TEST_F(SubscribeTest, WhatReplacesAPendingRetainedMessageIsNotFollowedByIt) {
    ConnectOptions one_at_a_time;
    one_at_a_time.properties.receive_maximum = 1;
    retain("a", "a1");
    retain("b", "b1");
    retain("c", "c1");
    Client& client = connect("c", one_at_a_time);
    client.subscribe("+", Qos::k1);
    auto first = client.next<mqtt::Publish>();
    Client& publisher = connect("p");
    for (const char* topic : {"a", "b", "c"}) publisher.publish(topic, "new", Qos::k1, true);
    client.puback(first.packet_id);
    EXPECT_EQ(client.payloads(), (std::vector<std::string>{"new", "new", "new"}));
}

TEST_F(SubscribeTest, UnsubscribeAlsoEndsWhatIsPending) {
    ConnectOptions one_at_a_time;
    one_at_a_time.properties.receive_maximum = 1;
    retain("a", "x");
    retain("b", "x");
    Client& client = connect("c", one_at_a_time);
    client.subscribe("+", Qos::k1);
    auto first = client.next<mqtt::Publish>();
    EXPECT_EQ(client.unsubscribe("+"), 0);
    client.puback(first.packet_id);
    EXPECT_TRUE(client.nothing());
}

TEST_F(SubscribeTest, AFilterOfTooManyLevelsIsRefusedWhenTheBudgetIsUsed) {
    Client& client = connect("c");
    EXPECT_EQ(client.subscribe(std::string(65535, '/')), 0);
    EXPECT_EQ(client.subscribe("a/b"), 0x97);
    client.unsubscribe(std::string(65535, '/'));
    EXPECT_EQ(client.subscribe("a/b"), 0);
}

}  // namespace
}  // namespace pgmqtt::broker
