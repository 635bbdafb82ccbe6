// What clients can make the broker keep without publishing stays within half of Config::max_memory.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class StateMemoryTest : public BrokerTest {
   protected:
    StateMemoryTest() {
        config_.max_memory = 4 << 20;
        auto_store_ = true;
        start();
    }

    // How many of `tries` CONNECTs with a client identifier of 60,000 bytes are taken.
    int sessions(int tries, const ConnectOptions& options) {
        int taken = 0;
        for (int i = 0; i < tries; ++i) {
            Client& client = dial(std::string(60000, 'x') + std::to_string(i), options);
            auto connack = client.next<mqtt::Connack>();
            if (connack.code == 0) {
                ++taken;
                client.send(mqtt::Disconnect{});
            } else {
                EXPECT_EQ(connack.code, static_cast<uint8_t>(ReasonCode::kQuotaExceeded));
                EXPECT_TRUE(client.closed());
            }
        }
        return taken;
    }
};

TEST_F(StateMemoryTest, ManyLargeFiltersAreRefused) {
    Client& client = connect("c");
    int granted = 0;
    for (int i = 0; i < 100; ++i) {
        uint8_t code = client.subscribe(std::string(60000, 'x') + std::to_string(i));
        if (code == 0) ++granted;
        if (code != 0) {
            EXPECT_EQ(code, static_cast<uint8_t>(ReasonCode::kQuotaExceeded));
        }
    }
    EXPECT_GT(granted, 10);
    EXPECT_LT(granted, 18);  // 2 MiB, twice 60,000 bytes each
    // One that is there may be replaced, and what was given back is there for others.
    EXPECT_EQ(client.subscribe(std::string(60000, 'x') + "0", Qos::k1), 1);
    client.unsubscribe(std::string(60000, 'x') + "0");
    Client& other = connect("d");
    EXPECT_EQ(other.subscribe(std::string(60000, 'y')), 0);
}

TEST_F(StateMemoryTest, EndedSessionsGiveBackWhatTheyTook) {
    ConnectOptions options;  // clean: they end with their connection
    EXPECT_EQ(sessions(100, options), 100);
    Client& client = connect("c");
    for (int i = 0; i < 10; ++i) client.subscribe(std::string(60000, 'x') + std::to_string(i));
    client.send(mqtt::Disconnect{});
    EXPECT_EQ(sessions(100, options), 100);
}

TEST_F(StateMemoryTest, ManySessionsWithLongClientIdentifiersAreRefused) {
    ConnectOptions options;
    options.properties.session_expiry_interval = 1000;
    int taken = sessions(100, options);
    EXPECT_GT(taken, 10);
    EXPECT_LT(taken, 18);
    // Those who have a session come in all the same.
    options.clean_start = false;
    EXPECT_EQ(sessions(taken, options), taken);
}

TEST_F(StateMemoryTest, ManyLargeWillsAreRefused) {
    std::string payload(60000, 'w');
    ConnectOptions options;
    options.will.emplace();
    options.will->topic = "will";
    options.will->payload = payload;
    int taken = 0;
    for (int i = 0; i < 100; ++i) {
        Client& client = dial("c" + std::to_string(i), options);
        if (client.next<mqtt::Connack>().code == 0) ++taken;
    }
    EXPECT_GT(taken, 25);
    EXPECT_LT(taken, 36);
}

// All of it counts, by the one formula for messages.
TEST_F(StateMemoryTest, WillsWithLargePropertiesAreRefused) {
    std::string text(60000, 'p');
    ConnectOptions options;
    options.will.emplace();
    options.will->topic = "will";
    mqtt::Properties& properties = options.will->properties;
    for (auto* property : {&properties.content_type, &properties.response_topic}) {
        properties = {};
        *property = text;
        start();
        int taken = 0;
        for (int i = 0; i < 100; ++i) {
            Client& client = dial("c" + std::to_string(i), options);
            if (client.next<mqtt::Connack>().code == 0) ++taken;
        }
        EXPECT_GT(taken, 25);
        EXPECT_LT(taken, 36);
    }
}

TEST_F(StateMemoryTest, SmallerLimitsTakeNothingAwayAtARestart) {
    ConnectOptions options;
    options.properties.session_expiry_interval = 1000;
    Client& client = connect("c", options);
    for (int i = 0; i < 10; ++i) client.subscribe(std::string(60000, 'x') + std::to_string(i));
    config_.max_memory = 1 << 20;
    config_.max_subscriptions = 3;
    restart();
    EXPECT_EQ(counters().subscriptions, 10u);
}

}  // namespace
}  // namespace pgmqtt::broker
