// QoS 2 in every state, across reconnects: section 4.3.3.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

using Payloads = std::vector<std::string>;

class ExactlyOnceTest : public BrokerTest {
   protected:
    ExactlyOnceTest() { auto_store_ = true; }

    static ConnectOptions persistent(Version version = Version::k5) {
        ConnectOptions options;
        options.version = version;
        options.clean_start = false;
        if (version == Version::k5) options.properties.session_expiry_interval = 3600;
        return options;
    }

    // A watcher of "t" that is always there.
    Client& watcher() {
        Client& client = connect("watcher");
        client.subscribe("t", Qos::k2);
        return client;
    }
};

TEST_F(ExactlyOnceTest, AllFourPacketsInAllVersions) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        Client& subscriber = connect("s", version);
        subscriber.subscribe("t", Qos::k2);
        Client& publisher = connect("p", version);
        publisher.publish_exactly_once("t", "x");
        auto publish = subscriber.next<mqtt::Publish>();
        EXPECT_EQ(publish.qos, Qos::k2);
        EXPECT_FALSE(publish.dup);
        EXPECT_EQ(counters().inflight, 1u);
        subscriber.complete(publish.packet_id);
        EXPECT_TRUE(subscriber.nothing());
        EXPECT_EQ(counters().inflight, 0u);
    }
}

TEST_F(ExactlyOnceTest, ARepetitionIsAcknowledgedAndNotDelivered) {
    Client& subscriber = watcher();
    for (Version version : {Version::k311, Version::k5}) {
        Client& publisher = connect("p", version);
        for (bool dup : {false, true, true}) {
            publisher.publish_as(7, "t", "x", Qos::k2, dup);
            EXPECT_EQ(publisher.next<mqtt::Pubrec>().packet_id, 7);  // [MQTT-4.3.3-10]
        }
        EXPECT_EQ(subscriber.payloads(), Payloads{"x"});
        publisher.pubrel(7);
        EXPECT_EQ(publisher.next<mqtt::Pubcomp>().reason, ReasonCode::kSuccess);
        publisher.publish_as(7, "t", "y", Qos::k2);  // a new message, section 4.3.3
        EXPECT_EQ(subscriber.payloads(), Payloads{"y"});
    }
}

TEST_F(ExactlyOnceTest, ARepetitionAfterAReconnectOrARestartIsNotDelivered) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        for (bool restarts : {false, true}) {
            start();
            store_ = {};
            Client* publisher = &connect("p", persistent(version));
            Client* subscriber = &watcher();
            publisher->publish_as(7, "t", "x", Qos::k2);
            EXPECT_EQ(publisher->next<mqtt::Pubrec>().packet_id, 7);
            EXPECT_EQ(subscriber->payloads(), Payloads{"x"});
            if (restarts) {
                restart();
                subscriber = &watcher();
            } else {
                publisher->drop();
            }
            publisher = &resume("p", persistent(version));
            publisher->publish_as(7, "t", "x", Qos::k2, true);
            EXPECT_EQ(publisher->next<mqtt::Pubrec>().reason, ReasonCode::kSuccess);
            EXPECT_TRUE(subscriber->nothing());
            publisher->pubrel(7);
            EXPECT_EQ(publisher->next<mqtt::Pubcomp>().reason, ReasonCode::kSuccess);
            EXPECT_EQ(store_.received(), 0u);
            publisher->publish_as(7, "t", "y", Qos::k2);
            EXPECT_EQ(subscriber->payloads(), Payloads{"y"});
        }
    }
}

TEST_F(ExactlyOnceTest, PubrelAfterAReconnectOrARestartIsCompleted) {
    for (bool restarts : {false, true}) {
        connect("p", persistent()).publish_as(7, "t", "x", Qos::k2);
        if (restarts) restart();
        Client& publisher = resume("p", persistent());
        publisher.pubrel(7);
        EXPECT_EQ(publisher.next<mqtt::Pubcomp>().reason, ReasonCode::kSuccess);
        publisher.pubrel(7);
        EXPECT_EQ(publisher.next<mqtt::Pubcomp>().reason, ReasonCode::kPacketIdentifierNotFound);
        broker_->delete_session("p", now_);
        run();
    }
}

TEST_F(ExactlyOnceTest, ANewSessionKnowsNoIdentifierOfTheOldOne) {
    Client& subscriber = watcher();
    connect("p", persistent()).publish_as(7, "t", "x", Qos::k2);
    Client& publisher = connect("p");  // clean start
    publisher.publish_as(7, "t", "y", Qos::k2);
    EXPECT_EQ(subscriber.payloads(), (Payloads{"x", "y"}));
    EXPECT_EQ(store_.received(), 0u);
}

TEST_F(ExactlyOnceTest, IdentifiersInUseAndUnknownOnes) {
    Client& client = connect("c");
    client.publish_as(7, "t", "x", Qos::k2);
    client.next<mqtt::Pubrec>();
    client.publish_as(7, "t", "x", Qos::k1);
    EXPECT_EQ(client.next<mqtt::Puback>().reason, ReasonCode::kPacketIdentifierInUse);
    client.pubrel(8);
    EXPECT_EQ(client.next<mqtt::Pubcomp>().reason, ReasonCode::kPacketIdentifierNotFound);
    client.pubrec(9);
    EXPECT_EQ(client.next<mqtt::Pubrel>().reason, ReasonCode::kPacketIdentifierNotFound);
    client.pubrec(9, ReasonCode::kUnspecifiedError);
    client.pubcomp(9);
    client.puback(9);
    EXPECT_TRUE(client.nothing());
    EXPECT_FALSE(client.closed());
}

TEST_F(ExactlyOnceTest, OnePublishTooManyIsReceiveMaximumExceeded) {
    config_.max_inflight = 2;
    start();
    Client& five = connect("five");
    for (uint16_t id : {uint16_t{1}, uint16_t{2}, uint16_t{1}}) {
        five.publish_as(id, "t", "", Qos::k2);
        five.next<mqtt::Pubrec>();
    }
    five.publish_as(3, "t", "", Qos::k2);
    EXPECT_EQ(five.next<mqtt::Disconnect>().reason, ReasonCode::kReceiveMaximumExceeded);
    Client& other = connect("other");
    for (uint16_t id = 1; id < 10; ++id) {  // PUBREL makes room
        other.publish_as(id, "t", "", Qos::k2);
        other.next<mqtt::Pubrec>();
        other.pubrel(id);
        other.next<mqtt::Pubcomp>();
    }
}

TEST_F(ExactlyOnceTest, OlderPublishersHaveNoMaximumAndLoseNothing) {
    config_.max_inflight = 2;
    start();
    Client& subscriber = watcher();
    Client& publisher = connect("p", persistent(Version::k311));
    auto_store_ = false;
    for (uint16_t id = 1; id <= 50; ++id) publisher.publish_as(id, "t", "", Qos::k2);
    EXPECT_GT(publisher.bytes_not_consumed(), 0u);  // not read for a while
    EXPECT_TRUE(publisher.nothing());
    auto_store_ = true;
    store_all();
    run();
    EXPECT_EQ(publisher.bytes_not_consumed(), 0u);
    EXPECT_EQ(subscriber.payloads().size(), 50u);
    for (uint16_t id = 1; id <= 50; ++id) {
        EXPECT_EQ(publisher.next<mqtt::Pubrec>().packet_id, id);
    }
    for (uint16_t id = 1; id <= 50; ++id) publisher.pubrel(id);
    for (uint16_t id = 1; id <= 50; ++id) {
        EXPECT_EQ(publisher.next<mqtt::Pubcomp>().packet_id, id);
    }
}

TEST_F(ExactlyOnceTest, PubrecWithAnErrorEndsTheDelivery) {
    ConnectOptions options = persistent();
    options.properties.receive_maximum = 1;
    Client& subscriber = connect("s", options);
    subscriber.subscribe("t", Qos::k2);
    Client& publisher = connect("p");
    publisher.publish_exactly_once("t", "1");
    publisher.publish_exactly_once("t", "2");
    subscriber.pubrec(subscriber.next<mqtt::Publish>().packet_id, ReasonCode::kUnspecifiedError);
    EXPECT_EQ(subscriber.next<mqtt::Publish>().payload, "2");
    subscriber.drop();
    Client& again = resume("s", options);
    auto publish = again.next<mqtt::Publish>();
    EXPECT_EQ(publish.payload, "2");
    EXPECT_TRUE(publish.dup);
    again.complete(publish.packet_id);
    EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
}

TEST_F(ExactlyOnceTest, PublishAndPubrelAreSentAgainAsTheyWere) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        for (bool restarts : {false, true}) {
            start();
            store_ = {};
            Client* subscriber = &connect("s", persistent(version));
            subscriber->subscribe("t", Qos::k2);
            Client& publisher = connect("p");
            for (const char* payload : {"1", "2", "3"})
                publisher.publish_exactly_once("t", payload);
            uint16_t ids[3];
            for (uint16_t& id : ids) id = subscriber->next<mqtt::Publish>().packet_id;
            subscriber->pubrec(ids[1]);
            subscriber->pubrec(ids[0]);
            subscriber->next<mqtt::Pubrel>();
            subscriber->next<mqtt::Pubrel>();
            if (restarts) {
                restart();
            } else {
                subscriber->drop();
            }
            subscriber = &resume("s", persistent(version));
            std::vector<uint16_t> released;
            while (subscriber->next_is<mqtt::Pubrel>()) {
                released.push_back(subscriber->next<mqtt::Pubrel>().packet_id);
            }
            if (restarts) std::sort(released.rbegin(), released.rend());
            EXPECT_EQ(released, (std::vector<uint16_t>{ids[1], ids[0]}));  // [MQTT-4.6.0-4]
            auto third = subscriber->next<mqtt::Publish>();
            EXPECT_EQ(third.packet_id, ids[2]);  // [MQTT-4.4.0-1]
            EXPECT_TRUE(third.dup);
            EXPECT_EQ(third.payload, "3");
            EXPECT_TRUE(subscriber->nothing());
            for (uint16_t id : released) subscriber->pubcomp(id);
            subscriber->complete(third.packet_id);
            EXPECT_EQ(counters().inflight, 0u);
            EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
        }
    }
}

TEST_F(ExactlyOnceTest, ASecondPubrecGetsASecondPubrel) {
    Client& subscriber = watcher();
    connect("p").publish_exactly_once("t", "x");
    uint16_t id = subscriber.next<mqtt::Publish>().packet_id;
    for (int i = 0; i < 2; ++i) {
        subscriber.pubrec(id);
        EXPECT_EQ(subscriber.next<mqtt::Pubrel>().reason, ReasonCode::kSuccess);
    }
    subscriber.pubcomp(id);
    EXPECT_EQ(counters().inflight, 0u);
}

TEST_F(ExactlyOnceTest, WhatWasSentDoesNotExpire) {
    for (bool restarts : {false, true}) {
        ConnectOptions options = persistent();
        options.properties.receive_maximum = 1;
        options.clean_start = true;
        Client* subscriber = &connect("s", options);
        subscriber->subscribe("t", Qos::k2);
        mqtt::Properties expiring;
        expiring.message_expiry_interval = 5;
        Client& publisher = connect("p");
        for (const char* payload : {"sent", "never sent"}) {
            publisher.publish("t", payload, Qos::k2, false, expiring);
        }
        EXPECT_EQ(subscriber->next<mqtt::Publish>().payload, "sent");
        if (restarts) {
            restart(10s);
        } else {
            subscriber->drop();
            advance(10s);
        }
        options.clean_start = false;
        subscriber = &resume("s", options);
        auto publish = subscriber->next<mqtt::Publish>();  // [MQTT-4.3.3-7]
        EXPECT_EQ(publish.payload, "sent");
        EXPECT_EQ(publish.properties.message_expiry_interval, 0u);
        subscriber->complete(publish.packet_id);
        EXPECT_TRUE(subscriber->nothing());
        EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
    }
}

TEST_F(ExactlyOnceTest, PubrecWaitsForTheSinkAndSurvivesAReconnectMeanwhile) {
    broker_->set_sinks({{1, "t", Qos::k1}});
    Client* publisher = &connect("p", persistent());
    publisher->publish_as(7, "t", "x", Qos::k2);
    EXPECT_TRUE(publisher->nothing());
    EXPECT_EQ(store_.received(), 0u);  // a restart now: the client must be able to try again
    publisher->drop();
    publisher = &resume("p", persistent());
    publisher->publish_as(7, "t", "x", Qos::k2, true);
    EXPECT_EQ(sunk_.size(), 1u);
    EXPECT_TRUE(publisher->nothing());
    sink_done(sunk_[0].token);
    EXPECT_EQ(publisher->next<mqtt::Pubrec>().packet_id, 7);
    EXPECT_EQ(store_.received(), 1u);
    publisher->pubrel(7);
    EXPECT_EQ(publisher->next<mqtt::Pubcomp>().reason, ReasonCode::kSuccess);

    publisher->publish_as(8, "t", "x", Qos::k2);
    sink_done(sunk_[1].token, ReasonCode::kPayloadFormatInvalid, "no");
    EXPECT_EQ(publisher->next<mqtt::Pubrec>().reason, ReasonCode::kPayloadFormatInvalid);
    publisher->publish_as(8, "t", "y", Qos::k2);  // the error ended it
    EXPECT_EQ(sunk_.size(), 3u);
}

}  // namespace
}  // namespace pgmqtt::broker
