// Topic aliases towards clients, section 3.3.2.3.4.
#include <random>

#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class OutgoingAliasTest : public BrokerTest {
   protected:
    Client& allowing(ByteView id, uint16_t maximum, uint32_t packet_size = 0) {
        ConnectOptions options;
        options.properties.topic_alias_maximum = maximum;
        if (packet_size != 0) options.properties.maximum_packet_size = packet_size;
        aliases_.clear();
        return connect(id, options);
    }

    // The topic of the next PUBLISH, as a client resolves it.
    std::string next_topic(Client& client, uint16_t maximum) {
        auto publish = client.next<mqtt::Publish>();
        if (publish.qos == Qos::k1) client.puback(publish.packet_id);
        if (!publish.properties.topic_alias) return std::string(publish.topic);
        uint16_t alias = *publish.properties.topic_alias;
        EXPECT_LE(alias, maximum);  // [MQTT-3.1.2-26]
        if (publish.topic.empty()) {
            ++shortened_;
            return aliases_.at(alias);
        }
        return aliases_[alias] = publish.topic;
    }

    std::map<uint16_t, std::string> aliases_;
    size_t shortened_ = 0;
};

TEST_F(OutgoingAliasTest, ATopicThatRepeatsIsSentOnce) {
    Client& client = allowing("c", 10);
    client.subscribe("#", Qos::k1);
    Client& publisher = connect("p");
    for (Qos qos : {Qos::k0, Qos::k1}) {
        for (int i = 0; i < 5; ++i) publisher.publish("a/topic/of/some/length", "x", qos);
        for (int i = 0; i < 5; ++i) EXPECT_EQ(next_topic(client, 10), "a/topic/of/some/length");
    }
    EXPECT_EQ(shortened_, 8u);
}

TEST_F(OutgoingAliasTest, NoneUnlessTheClientAllowsThem) {
    Client& none = connect("n");
    Client& zero = allowing("z", 0);
    Client& old = connect("o", Version::k311);
    for (Client* client : {&none, &zero, &old}) client->subscribe("#");
    Client& publisher = connect("p");
    for (int i = 0; i < 5; ++i) publisher.publish("a/topic/of/some/length", "x");
    for (Client* client : {&none, &zero, &old}) {
        for (int i = 0; i < 5; ++i) {
            auto publish = client->next<mqtt::Publish>();
            EXPECT_EQ(publish.topic, "a/topic/of/some/length");
            EXPECT_FALSE(publish.properties.topic_alias.has_value());
        }
    }
}

TEST_F(OutgoingAliasTest, ANewConnectionBeginsWithNone) {
    Client& publisher = connect("p");
    for (int round = 0; round < 2; ++round) {
        Client& client = allowing("c", 1);
        client.subscribe("#");
        for (int i = 0; i < 3; ++i) publisher.publish("a/topic/of/some/length", "x");
        for (int i = 0; i < 3; ++i) EXPECT_EQ(next_topic(client, 1), "a/topic/of/some/length");
    }
}

// What was not sent was not learnt, and the limit is of the packet that is sent [MQTT-3.1.2-24].
TEST_F(OutgoingAliasTest, APacketThatIsTooLargeTeachesNothing) {
    std::string topic(100, 't');
    Client& client = allowing("c", 5, 110);
    client.subscribe("#");
    Client& publisher = connect("p");
    for (int i = 0; i < 3; ++i) publisher.publish(topic, std::string(50, 'x'));
    EXPECT_TRUE(client.nothing());
    EXPECT_EQ(counters().dropped_too_large, 3u);
}

TEST_F(OutgoingAliasTest, ManyTopicsInRandomOrderAreNeverMixedUp) {
    Client& client = allowing("c", 7);
    client.subscribe("s/#", Qos::k1, {}, 3);
    Client& publisher = connect("p");
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        std::string topic = "s/a/topic/number/" + std::to_string(random() % 12);
        publisher.publish(topic, std::string(random() % 2 * 5000, 'x'), Qos(random() % 2));
        ASSERT_EQ(next_topic(client, 7), topic);
    }
    EXPECT_GT(shortened_, 500u);
}

}  // namespace
}  // namespace pgmqtt::broker
