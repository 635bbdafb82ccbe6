// Shared subscriptions, section 4.8.2.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class SharedSubscriptionTest : public BrokerTest {
   protected:
    std::vector<Client*> group(size_t count, ByteView filter, Qos qos = Qos::k1,
                               const ConnectOptions& options = {}) {
        std::vector<Client*> members;
        for (size_t i = 0; i < count; ++i) {
            members.push_back(&connect("m" + std::to_string(clients_.size()), options));
            EXPECT_EQ(members.back()->subscribe(filter, qos), static_cast<uint8_t>(qos));
        }
        return members;
    }
};

TEST_F(SharedSubscriptionTest, EveryMessageGoesToOneMemberInTurn) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        ConnectOptions options;
        options.version = version;
        std::vector<Client*> members = group(4, "$share/g/jobs/+", Qos::k1, options);
        Client& publisher = connect("p");
        for (int i = 0; i < 40; ++i) publisher.publish("jobs/a", std::to_string(i), Qos::k1);
        for (Client* member : members) {
            EXPECT_EQ(member->payloads().size(), 10u);
            member->drop();
        }
    }
}

TEST_F(SharedSubscriptionTest, GroupsAndOrdinarySubscriptionsEachGetACopy) {
    Client& one = *group(1, "$share/g/t")[0];
    Client& other = *group(1, "$share/h/t")[0];
    one.subscribe("t");
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1);
    EXPECT_EQ(one.payloads().size(), 2u);
    EXPECT_EQ(other.payloads().size(), 1u);
}

TEST_F(SharedSubscriptionTest, TheMembersOwnQosIdentifierAndRetainHold) {
    Client& first = connect("a");
    Client& second = connect("b");
    mqtt::Subscription options;
    options.retain_as_published = true;
    first.subscribe("$share/g/t", Qos::k0, {}, 7);
    second.subscribe("$share/g/t", Qos::k1, options, 9);
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1, true);
    publisher.publish("t", "x", Qos::k1, true);
    auto to_first = first.next<mqtt::Publish>();
    EXPECT_EQ(to_first.qos, Qos::k0);
    EXPECT_FALSE(to_first.retain);
    EXPECT_EQ(to_first.properties.subscription_identifiers, (std::vector<uint32_t>{7}));
    auto to_second = second.next<mqtt::Publish>();
    EXPECT_EQ(to_second.qos, Qos::k1);
    EXPECT_TRUE(to_second.retain);
    EXPECT_EQ(to_second.properties.subscription_identifiers, (std::vector<uint32_t>{9}));
}

TEST_F(SharedSubscriptionTest, RetainedMessagesAreNotSent) {
    Client& publisher = connect("p");
    publisher.publish("t", "old", Qos::k0, true);
    Client& member = connect("m");
    member.subscribe("$share/g/t", Qos::k1);
    EXPECT_TRUE(member.nothing());
}

TEST_F(SharedSubscriptionTest, InvalidOnesAreRefused) {
    Client& old = connect("o", Version::k311);
    for (ByteView filter : {"$share/g", "$share//t", "$share/+/t", "$share/g/"}) {
        EXPECT_EQ(old.subscribe(filter), 0x80) << filter;
    }
    EXPECT_EQ(counters().subscriptions, 0u);
    Client& client = connect("c");
    mqtt::Subscribe subscribe;
    subscribe.packet_id = 1;
    mqtt::Subscription no_local;
    no_local.filter = "$share/g/t";
    no_local.no_local = true;
    subscribe.subscriptions.push_back(no_local);
    client.send(subscribe);  // [MQTT-3.8.3-4]
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kProtocolError);
}

TEST_F(SharedSubscriptionTest, UnsubscribedAndDepartedMembersGetNothing) {
    std::vector<Client*> members = group(3, "$share/g/t");
    Client& publisher = connect("p");
    EXPECT_EQ(members[0]->unsubscribe("t"), 0x11);
    EXPECT_EQ(members[0]->unsubscribe("$share/h/t"), 0x11);
    EXPECT_EQ(members[0]->unsubscribe("$share/g/t"), 0);
    members[1]->drop();
    for (int i = 0; i < 10; ++i) publisher.publish("t", "x", Qos::k1);
    EXPECT_TRUE(members[0]->nothing());
    EXPECT_EQ(members[2]->payloads().size(), 10u);
    members[2]->send(mqtt::Disconnect{});
    EXPECT_EQ(counters().subscriptions, 0u);
    publisher.publish("t", "x", Qos::k1);
    while (!publisher.nothing()) {
        bool last = publisher.packets_waiting() == 1;
        EXPECT_EQ(publisher.next<mqtt::Puback>().reason,
                  last ? ReasonCode::kNoMatchingSubscribers : ReasonCode::kSuccess);
    }
}

TEST_F(SharedSubscriptionTest, TakeOverLeavesTheGroupToTheOthers) {
    std::vector<Client*> members = group(2, "$share/g/t");
    connect("m0");
    Client& publisher = connect("p");
    for (int i = 0; i < 4; ++i) publisher.publish("t", "x", Qos::k1);
    EXPECT_EQ(members[1]->payloads().size(), 4u);
}

TEST_F(SharedSubscriptionTest, ASlowMemberDoesNotHoldUpTheOthers) {
    ConnectOptions narrow;
    narrow.properties.receive_maximum = 2;
    Client& slow = *group(1, "$share/g/t", Qos::k1, narrow)[0];
    Client& quick = *group(1, "$share/g/t", Qos::k1)[0];
    Client& publisher = connect("p");
    size_t taken = 0;
    for (int i = 0; i < 50; ++i) {
        publisher.publish("t", "x", Qos::k1);
        taken += quick.payloads().size();
    }
    EXPECT_EQ(taken, 48u);
    EXPECT_EQ(slow.packets_waiting(), 2u);
    EXPECT_EQ(counters().queued, 0u);
}

TEST_F(SharedSubscriptionTest, WhenAllAreSlowTheirQueuesFillEvenly) {
    ConnectOptions narrow;
    narrow.properties.receive_maximum = 1;
    std::vector<Client*> members = group(2, "$share/g/t", Qos::k1, narrow);
    Client& publisher = connect("p");
    for (int i = 0; i < 22; ++i) publisher.publish("t", "x", Qos::k1);
    EXPECT_EQ(counters().queued, 20u);
    for (Client* member : members) EXPECT_EQ(member->payloads().size(), 11u);
}

TEST_F(SharedSubscriptionTest, Qos0PassesByAMemberThatDoesNotRead) {
    config_.client_buffer = 1000;
    start();
    std::vector<Client*> members = group(2, "$share/g/t", Qos::k0);
    members[0]->stall(true);
    Client& publisher = connect("p");
    std::string payload(600, 'x');
    for (int i = 0; i < 20; ++i) publisher.publish("t", payload);
    EXPECT_EQ(counters().dropped_slow_qos0, 0u);
    EXPECT_EQ(members[1]->payloads().size(), 18u);
}

TEST_F(SharedSubscriptionTest, WhatADepartedMemberDidNotAcknowledgeGoesToAnother) {
    for (Qos qos : {Qos::k1, Qos::k2}) {
        ConnectOptions narrow;
        narrow.properties.receive_maximum = 3;
        Client& first = connect("a", narrow);
        first.subscribe("$share/g/t", qos);
        Client& publisher = connect("p");
        for (int i = 0; i < 6; ++i) publisher.publish("t", std::to_string(i), Qos::k1);
        EXPECT_EQ(first.packets_waiting(), 3u);
        Client& second = connect("b");
        second.subscribe("$share/g/t", qos);
        first.puback(first.next<mqtt::Publish>().packet_id);
        first.drop();
        EXPECT_EQ(second.payloads(), (std::vector<std::string>{"1", "2", "3", "4", "5"}));
        second.drop();
        EXPECT_EQ(counters().queued, 0u);
        EXPECT_EQ(counters().inflight, 0u);
    }
}

// [MQTT-4.8.2-5]; what it never was sent is another matter.
TEST_F(SharedSubscriptionTest, Qos2InFlightIsNotHandedOver) {
    ConnectOptions narrow;
    narrow.properties.receive_maximum = 2;
    Client& first = connect("a", narrow);
    first.subscribe("$share/g/t", Qos::k2);
    Client& publisher = connect("p");
    publisher.publish("t", "sent", Qos::k2);
    publisher.publish("t", "sent too", Qos::k2);
    publisher.publish("t", "queued", Qos::k2);
    Client& second = connect("b");
    second.subscribe("$share/g/t", Qos::k1);
    first.drop();
    EXPECT_EQ(second.payloads(), (std::vector<std::string>{"queued"}));
}

// [MQTT-4.8.2-6]
TEST_F(SharedSubscriptionTest, WhatAMemberRefusedIsNotHandedOver) {
    Client& first = connect("a");
    first.subscribe("$share/g/t", Qos::k1);
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1);
    Client& second = connect("b");
    second.subscribe("$share/g/t", Qos::k1);
    mqtt::Puback refusal;
    refusal.packet_id = first.next<mqtt::Publish>().packet_id;
    refusal.reason = ReasonCode::kImplementationSpecificError;
    first.send(refusal);
    first.drop();
    EXPECT_TRUE(second.nothing());
}

TEST_F(SharedSubscriptionTest, AbsentMembersArePassedOverWhileSomebodyIsThere) {
    auto_store_ = true;
    ConnectOptions persistent;
    persistent.clean_start = false;
    persistent.properties.session_expiry_interval = 100;
    Client& absent = connect("a", persistent);
    EXPECT_EQ(absent.subscribe("$share/g/t", Qos::k1), 1);
    absent.drop();
    Client& present = connect("b");
    present.subscribe("$share/g/t", Qos::k1);
    Client& publisher = connect("p");
    for (int i = 0; i < 10; ++i) publisher.publish("t", "x", Qos::k1);
    EXPECT_EQ(present.payloads().size(), 10u);
    present.drop();
    publisher.publish("t", "for the absent", Qos::k1);
    EXPECT_EQ(counters().queued, 1u);
    // Its session ends, and there is nobody left.
    advance(200s);
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(counters().subscriptions, 0u);
}

TEST_F(SharedSubscriptionTest, ManyGroupsComeAndGo) {
    Client& client = connect("c");
    for (int i = 0; i < 500; ++i) {
        client.subscribe("$share/g" + std::to_string(i % 50) + "/a/" + std::to_string(i), Qos::k0);
    }
    Client& publisher = connect("p");
    for (int i = 0; i < 500; ++i) publisher.publish("a/" + std::to_string(i), "x");
    EXPECT_EQ(client.payloads().size(), 500u);
    for (int i = 0; i < 500; i += 2) {
        EXPECT_EQ(
            client.unsubscribe("$share/g" + std::to_string(i % 50) + "/a/" + std::to_string(i)), 0);
    }
    for (int i = 0; i < 500; ++i) publisher.publish("a/" + std::to_string(i), "x");
    EXPECT_EQ(client.payloads().size(), 250u);
}

}  // namespace
}  // namespace pgmqtt::broker
