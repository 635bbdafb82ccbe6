// Sessions: clean start, resume, take-over, expiry, the queue of who is away.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

using Payloads = std::vector<std::string>;

class SessionTest : public BrokerTest {
   protected:
    SessionTest() { auto_store_ = true; }

    static ConnectOptions persistent(Version version = Version::k5, uint32_t expiry = 3600) {
        ConnectOptions options;
        options.version = version;
        options.clean_start = false;
        if (version == Version::k5) options.properties.session_expiry_interval = expiry;
        return options;
    }

    bool session_present(ByteView id, const ConnectOptions& options) {
        return dial(id, options).next<mqtt::Connack>().session_present;
    }

    void from_sql(ByteView payload, Qos qos = Qos::k1) {
        publish_from_sql(PublishSource::kOutbox, ++batch_,
                         {{.topic = "t", .payload = payload, .qos = qos}});
    }

    uint64_t batch_ = 0;
};

TEST_F(SessionTest, IsPresentWhenItWasKept) {
    for (Version version : {Version::k311, Version::k5}) {
        connect("c", persistent(version)).send(mqtt::Disconnect{});
        EXPECT_TRUE(session_present("c", persistent(version)));  // [MQTT-3.2.2-3]
        ConnectOptions clean = persistent(version);
        clean.clean_start = true;
        EXPECT_FALSE(session_present("c", clean));  // [MQTT-3.1.2-4]
        broker_->delete_session("c", now_);
        run();
        EXPECT_TRUE(store_.empty());
    }
    connect("old", persistent(Version::k31)).drop();
    EXPECT_FALSE(session_present("old", persistent(Version::k31)));  // 3.1 has no such flag
}

TEST_F(SessionTest, EndsWithItsConnectionUnlessAskedOtherwise) {
    ConnectOptions five = persistent(Version::k5, 0);
    ConnectOptions three;
    three.version = Version::k311;
    for (const ConnectOptions& options : {five, three}) {
        connect("c", options).drop();
        EXPECT_FALSE(session_present("c", options));
        EXPECT_TRUE(store_.empty());
        broker_->delete_session("c", now_);
        run();
    }
}

// A CONNACK that says the old session is gone is a promise, too [MQTT-3.1.2-4].
TEST_F(SessionTest, ACleanStartIsAnsweredWhenTheOldSessionIsGoneFromTheStore) {
    for (bool disconnected_first : {true, false}) {
        connect("c", persistent()).subscribe("t", Qos::k1);
        store_all();
        run();
        auto_store_ = false;
        if (disconnected_first) clients_.back().drop();
        Client& client = dial("c");
        EXPECT_TRUE(client.nothing());
        Client& other = dial("other");  // does not wait
        EXPECT_EQ(other.next<mqtt::Connack>().code, 0);
        store_all();
        run();
        EXPECT_EQ(store_.sessions(), 0u);
        EXPECT_FALSE(client.next<mqtt::Connack>().session_present);
        // Nor does it the next time.
        EXPECT_FALSE(dial("c").next<mqtt::Connack>().session_present);
        auto_store_ = true;
    }
}

TEST_F(SessionTest, ASessionThatEndedAMomentAgoDoesNotComeBackEither) {
    Client& client = connect("c", persistent());
    auto_store_ = false;
    mqtt::Disconnect disconnect;
    disconnect.properties.session_expiry_interval = 0;
    client.send(disconnect);
    Client& next = dial("c");
    EXPECT_TRUE(next.nothing());
    store_all();
    run();
    EXPECT_FALSE(next.next<mqtt::Connack>().session_present);
}

TEST_F(SessionTest, ExpiryIsCountedFromTheDisconnection) {
    Client& client = connect("c", persistent(Version::k5, 10));
    client.subscribe("t", Qos::k1);
    advance(60s);
    client.drop();
    from_sql("x");
    advance(9999ms);
    EXPECT_EQ(store_.sessions(), 1u);
    advance(1ms);
    EXPECT_TRUE(store_.empty());
    EXPECT_EQ(counters().subscriptions + counters().queued + counters().queued_bytes, 0u);
    EXPECT_FALSE(session_present("c", persistent()));
}

TEST_F(SessionTest, AReconnectStopsTheExpiry) {
    connect("c", persistent(Version::k5, 10)).drop();
    advance(5s);
    Client& client = resume("c", persistent(Version::k5, 10));
    advance(60s);
    client.drop();
    advance(9s);
    EXPECT_TRUE(session_present("c", persistent()));
}

TEST_F(SessionTest, NeverExpiresWhenTheLimitAllows) {
    config_.max_session_expiry = UINT32_MAX;
    start();
    Client& client = dial("c", persistent(Version::k5, UINT32_MAX));
    EXPECT_EQ(client.next<mqtt::Connack>().properties.session_expiry_interval, std::nullopt);
    client.drop();
    advance(std::chrono::hours(24 * 365 * 10));
    EXPECT_TRUE(session_present("c", persistent()));
}

TEST_F(SessionTest, TheLimitIsToldAndHolds) {
    config_.max_session_expiry = 100;
    start();
    auto connack = dial("c", persistent(Version::k5, 101)).next<mqtt::Connack>();
    EXPECT_EQ(connack.properties.session_expiry_interval, 100u);  // section 3.2.2.3.2
    Client& same = dial("d", persistent(Version::k5, 100));
    EXPECT_EQ(same.next<mqtt::Connack>().properties.session_expiry_interval, std::nullopt);
    mqtt::Disconnect disconnect;
    disconnect.properties.session_expiry_interval = 1000;
    same.send(disconnect);
    connect("e", persistent(Version::k311)).drop();
    advance(100s);
    EXPECT_EQ(store_.sessions(), 1u);  // c is connected
}

TEST_F(SessionTest, DisconnectChangesTheExpiry) {
    mqtt::Disconnect longer;
    longer.properties.session_expiry_interval = 50;
    connect("c", persistent(Version::k5, 10)).send(longer);
    advance(49s);
    EXPECT_EQ(store_.sessions(), 1u);
    mqtt::Disconnect none;
    none.properties.session_expiry_interval = 0;
    resume("c", persistent()).send(none);
    EXPECT_TRUE(store_.empty());
}

TEST_F(SessionTest, ExpiryMayNotBeRaisedFromZero) {
    Client& client = connect("c");
    mqtt::Disconnect disconnect;
    disconnect.properties.session_expiry_interval = 10;
    client.send(disconnect);
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kProtocolError);
    EXPECT_EQ(counters().disconnects, 0u);
}

TEST_F(SessionTest, BelongsToTheRoleThatMadeIt) {
    verdict_.username = "alice";
    connect("c", persistent()).drop();
    Client& online = connect("d");
    verdict_.username = "bob";
    EXPECT_EQ(dial("c", persistent()).next<mqtt::Connack>().code, 0x87);
    EXPECT_EQ(dial("d").next<mqtt::Connack>().code, 0x87);
    EXPECT_FALSE(online.closed());
    ConnectOptions three;
    three.version = Version::k311;
    EXPECT_EQ(dial("c", three).next<mqtt::Connack>().code, 5);
    restart();
    EXPECT_EQ(dial("c", persistent()).next<mqtt::Connack>().code, 0x87);
    verdict_.username = "alice";
    EXPECT_TRUE(session_present("c", persistent()));
}

TEST_F(SessionTest, TakeOverKeepsTheSession) {
    Client& old = connect("c", persistent());
    old.subscribe("t", Qos::k1);
    from_sql("1");
    EXPECT_EQ(old.next<mqtt::Publish>().payload, "1");
    Client& next = resume("c", persistent());
    EXPECT_EQ(old.next<mqtt::Disconnect>().reason, ReasonCode::kSessionTakenOver);
    EXPECT_TRUE(old.closed());
    auto publish = next.next<mqtt::Publish>();
    EXPECT_TRUE(publish.dup);
    next.puback(publish.packet_id);
    from_sql("2");
    EXPECT_EQ(next.payloads(), Payloads{"2"});
    EXPECT_EQ(counters().clients, 1u);
}

TEST_F(SessionTest, TakeOverOfOneThatWaitsForTheStore) {
    auto_store_ = false;
    Client& first = dial("c", persistent());
    Client& second = dial("c", persistent());
    EXPECT_TRUE(first.closed());
    EXPECT_TRUE(first.nothing());  // no DISCONNECT before CONNACK [MQTT-3.14.0-1]
    store_all();
    EXPECT_TRUE(second.next<mqtt::Connack>().session_present);
    EXPECT_EQ(counters().clients, 1u);
}

TEST_F(SessionTest, WhoIsAwayFindsQos1And2InOrderAndNoQos0) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        for (bool restarts : {false, true}) {
            start();
            store_ = {};
            Client* client = &connect("c", persistent(version));
            client->subscribe("t", Qos::k2);
            client->drop();
            Client& publisher = connect("p");
            publisher.publish("t", "1", Qos::k1);
            publisher.next<mqtt::Puback>();
            publisher.publish_exactly_once("t", "2");
            publisher.publish("t", "zero", Qos::k0);
            publisher.publish("t", "3", Qos::k1);
            EXPECT_EQ(counters().queued, 3u);
            if (restarts) restart(10s);
            client = &resume("c", persistent(version));
            EXPECT_EQ(client->payloads(), (Payloads{"1", "2", "3"}));
            EXPECT_EQ(counters().queued + counters().queued_bytes + counters().inflight, 0u);
            EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
        }
    }
}

TEST_F(SessionTest, OnlyWhatMayHaveBeenSentSaysDup) {
    Client* client = &connect("c", persistent());
    client->subscribe("t", Qos::k1);
    from_sql("1");
    uint16_t id = client->next<mqtt::Publish>().packet_id;
    client->drop();
    from_sql("2");
    restart();
    client = &resume("c", persistent());
    auto first = client->next<mqtt::Publish>();
    EXPECT_EQ(first.packet_id, id);
    EXPECT_TRUE(first.dup);
    auto second = client->next<mqtt::Publish>();
    EXPECT_FALSE(second.dup);  // [MQTT-3.3.1-1]
    EXPECT_NE(second.packet_id, id);
}

TEST_F(SessionTest, ResendsKeepToTheNewReceiveMaximumAndTheirOrder) {
    Client* client = &connect("c", persistent());
    client->subscribe("t", Qos::k2);
    for (int i = 0; i < 6; ++i) from_sql(std::to_string(i), i % 2 == 0 ? Qos::k1 : Qos::k2);
    EXPECT_EQ(client->packets_waiting(), 6u);
    client->drop();
    from_sql("6");
    ConnectOptions narrow = persistent();
    narrow.properties.receive_maximum = 2;
    client = &resume("c", narrow);
    EXPECT_EQ(client->packets_waiting(), 2u);  // [MQTT-3.3.4-9]
    for (int i = 0; i < 7; ++i) {
        auto publish = client->next<mqtt::Publish>();
        EXPECT_EQ(publish.payload, std::to_string(i));
        EXPECT_EQ(publish.dup, i < 6);
        EXPECT_EQ(publish.packet_id, i + 1);
        // The second of the two that may be there; then what this acknowledgement lets in.
        if (publish.qos == Qos::k1) client->puback(publish.packet_id);
        if (publish.qos == Qos::k2) client->complete(publish.packet_id);
        EXPECT_LE(client->packets_waiting(), 2u);
    }
    EXPECT_TRUE(client->nothing());
}

TEST_F(SessionTest, AnUnfinishedPubrelLeavesTheReceiveMaximumToPublishes) {
    ConnectOptions narrow = persistent();
    narrow.properties.receive_maximum = 1;
    Client* client = &connect("c", narrow);
    client->subscribe("t", Qos::k2);
    from_sql("1", Qos::k2);
    from_sql("2", Qos::k2);
    client->pubrec(client->next<mqtt::Publish>().packet_id);
    client->next<mqtt::Pubrel>();
    EXPECT_TRUE(client->nothing());  // section 4.9: until PUBCOMP
    client->drop();
    client = &resume("c", narrow);
    uint16_t id = client->next<mqtt::Pubrel>().packet_id;
    EXPECT_EQ(client->next<mqtt::Publish>().payload, "2");
    client->pubcomp(id);
    EXPECT_TRUE(client->nothing());
}

TEST_F(SessionTest, NothingIsSentAgainOnTheSameConnection) {
    Client& client = connect("c", persistent());
    client.subscribe("t", Qos::k1);
    from_sql("1");
    client.next<mqtt::Publish>();
    advance(600s);
    EXPECT_TRUE(client.nothing());  // [MQTT-4.4.0-1]
}

TEST_F(SessionTest, TooLargeForTheNewConnectionKeepsNoPlace) {
    Client* client = &connect("c", persistent());
    client->subscribe("t", Qos::k2);
    std::string large(500, 'x');
    from_sql(large, Qos::k1);
    from_sql(large, Qos::k2);
    from_sql("small", Qos::k2);
    client->drop();
    from_sql(large, Qos::k2);
    from_sql("last", Qos::k1);
    ConnectOptions tiny = persistent();
    tiny.properties.receive_maximum = 1;
    tiny.properties.maximum_packet_size = 100;
    client = &resume("c", tiny);
    EXPECT_EQ(client->payloads(), (Payloads{"small", "last"}));  // [MQTT-3.1.2-25]
    EXPECT_EQ(counters().inflight, 0u);
    EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
}

TEST_F(SessionTest, ExpiredMessagesLeaveTheQueueUnread) {
    Client* client = &connect("c", persistent());
    client->subscribe("t", Qos::k1);
    client->drop();
    mqtt::Properties expiring;
    Client& publisher = connect("p");
    publisher.publish("t", "stays", Qos::k1);
    for (uint32_t seconds : {5u, 7u, 100u}) {
        expiring.message_expiry_interval = seconds;
        publisher.publish("t", std::to_string(seconds), Qos::k1, false, expiring);
    }
    advance(5s);
    EXPECT_EQ(counters().queued, 3u);
    EXPECT_EQ(store_.messages(), 3u);
    advance(2s);
    EXPECT_EQ(store_.messages(), 2u);
    advance(3s);
    restart(20s);
    client = &resume("c", persistent());
    EXPECT_EQ(client->next<mqtt::Publish>().payload, "stays");
    auto publish = client->next<mqtt::Publish>();
    EXPECT_EQ(publish.payload, "100");
    EXPECT_EQ(publish.properties.message_expiry_interval, 70u);  // [MQTT-3.3.2-6]
    EXPECT_EQ(counters().dropped_expired, 0u);
}

TEST_F(SessionTest, TheQueueOfWhoIsAwayHasItsLimits) {
    config_.max_queued_messages = 3;
    const std::pair<QueuePolicy, Payloads> cases[] = {
        {QueuePolicy::kDropOldest, {"2", "3", "4"}},
        {QueuePolicy::kDropNewest, {"0", "1", "2"}},
        {QueuePolicy::kReject, {"0", "1", "2"}},
        {QueuePolicy::kDisconnect, {"0", "1", "2"}},
    };
    for (const auto& [policy, left] : cases) {
        config_.queue_policy = policy;
        start();
        store_ = {};
        Client& client = connect("c", persistent());
        client.subscribe("t", Qos::k1);
        client.drop();
        Client& publisher = connect("p");
        for (int i = 0; i < 5; ++i) {
            publisher.publish("t", std::to_string(i), Qos::k1);
            bool rejected = policy == QueuePolicy::kReject && i >= 3;
            EXPECT_EQ(publisher.next<mqtt::Puback>().reason,
                      rejected ? ReasonCode::kQuotaExceeded : ReasonCode::kSuccess);
        }
        EXPECT_EQ(counters().dropped_queue_full, 2u);
        EXPECT_EQ(store_.deliveries(), 3u);
        EXPECT_EQ(store_.messages(), 3u);
        EXPECT_EQ(resume("c", persistent()).payloads(), left);
    }
}

TEST_F(SessionTest, SubscriptionsSurviveWithAllTheirOptions) {
    mqtt::Subscription subscription;
    subscription.no_local = true;
    subscription.retain_as_published = true;
    Client* client = &connect("c", persistent());
    client->subscribe("t", Qos::k2, subscription, 77);
    client->subscribe("gone", Qos::k1);
    client->unsubscribe("gone");
    restart();
    EXPECT_EQ(counters().subscriptions, 1u);
    client = &resume("c", persistent());
    client->publish("t", "own", Qos::k0);
    EXPECT_TRUE(client->nothing());
    connect("p").publish("t", "x", Qos::k1, true);
    auto publish = client->next<mqtt::Publish>();
    EXPECT_TRUE(publish.retain);
    EXPECT_EQ(publish.qos, Qos::k1);
    EXPECT_EQ(publish.properties.subscription_identifiers, std::vector<uint32_t>{77});
}

TEST_F(SessionTest, QueuedMessagesKeepTheirSubscriptionIdentifiersAcrossARestart) {
    Client* client = &connect("c", persistent());
    client->subscribe("t", Qos::k1, {}, 7);
    client->subscribe("#", Qos::k1, {}, 8);
    client->drop();
    from_sql("x");
    restart();
    client = &resume("c", persistent());
    auto identifiers = client->next<mqtt::Publish>().properties.subscription_identifiers;
    std::sort(identifiers.begin(), identifiers.end());
    EXPECT_EQ(identifiers, (std::vector<uint32_t>{7, 8}));
}

TEST_F(SessionTest, RetainedMessagesReachAPersistentSessionOnceStored) {
    Client& publisher = connect("p");
    for (int i = 0; i < 300; ++i) {
        publisher.publish("r/" + std::to_string(i), "x", Qos::k1, true);
        publisher.next<mqtt::Puback>();
    }
    Client& client = connect("c", persistent());
    client.subscribe("r/#", Qos::k1);
    EXPECT_EQ(client.packets_waiting(), 100u);  // max_inflight
    size_t count = client.payloads().size();
    EXPECT_EQ(count, 300u);
    EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
    EXPECT_EQ(store_.retained(), 300u);
}

TEST_F(SessionTest, OneMessageForManySessionsIsStoredOnce) {
    for (int i = 0; i < 5; ++i) {
        connect("c" + std::to_string(i), persistent()).subscribe("t", Qos::k1);
    }
    from_sql("x");
    EXPECT_EQ(store_.messages(), 1u);
    EXPECT_EQ(store_.deliveries(), 5u);
    for (int i = 0; i < 4; ++i) {
        resume("c" + std::to_string(i), persistent()).payloads();
        EXPECT_EQ(store_.messages(), 1u);
    }
    broker_->delete_session("c4", now_);
    run();
    EXPECT_EQ(store_.messages() + store_.deliveries(), 0u);
}

TEST_F(SessionTest, SteeringFromSql) {
    EXPECT_FALSE(broker_->disconnect_client("c", ReasonCode::kAdministrativeAction, now_));
    EXPECT_FALSE(broker_->delete_session("c", now_));
    Client& client = connect("c", persistent());
    EXPECT_TRUE(broker_->disconnect_client("c", ReasonCode::kAdministrativeAction, now_));
    run();
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kAdministrativeAction);
    EXPECT_FALSE(broker_->disconnect_client("c", ReasonCode::kAdministrativeAction, now_));
    Client& again = resume("c", persistent());
    EXPECT_TRUE(broker_->delete_session("c", now_));
    run();
    EXPECT_EQ(again.next<mqtt::Disconnect>().reason, ReasonCode::kAdministrativeAction);
    EXPECT_TRUE(store_.empty());
}

TEST_F(SessionTest, AJumpOfTheWallClockExpiresNothing) {
    connect("c", persistent(Version::k5, 60)).drop();
    now_.wall += std::chrono::hours(24 * 365 * 10);
    advance(59s);
    EXPECT_EQ(store_.sessions(), 1u);
    now_.wall -= std::chrono::hours(24 * 365 * 20);
    advance(1s);
    EXPECT_EQ(store_.sessions(), 0u);
}

TEST_F(SessionTest, ExpiredWhileTheServerWasDown) {
    connect("short", persistent(Version::k5, 10)).drop();
    connect("long", persistent(Version::k5, 1000)).drop();
    connect("online", persistent(Version::k5, 10));
    restart(20s);
    EXPECT_EQ(store_.session("short").session_id, 0u);
    EXPECT_NE(store_.session("long").session_id, 0u);
    EXPECT_NE(store_.session("online").session_id, 0u);  // disconnected since now
    advance(10s);
    EXPECT_EQ(store_.session("online").session_id, 0u);
}

}  // namespace
}  // namespace pgmqtt::broker
