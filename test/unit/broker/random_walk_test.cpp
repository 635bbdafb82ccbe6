// Many clients do random things; a model that is too simple to be wrong says what they must
// receive.
#include <array>
#include <random>
#include <set>

#include "broker_fixture.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

constexpr size_t kClients = 12;
constexpr size_t kSteps = 120000;

// One message, as the model sees it: unique by its payload.
struct Expected {
    std::string payload;
    std::string topic;
    Qos qos;
};

struct Peer {
    Client* client = nullptr;
    std::map<std::string, Qos> filters;
    // What must come, in order, by QoS: the two may overtake each other.
    std::deque<Expected> expected[2];
    size_t pubacks_expected = 0;
};

class RandomWalkTest : public BrokerTest {
   protected:
    static constexpr const char* kTopics[] = {"a", "a/b", "a/c", "b/b", "b", "a/b/c", "/"};
    static constexpr const char* kFilters[] = {"a",   "a/+", "a/#", "+",     "#",
                                               "+/b", "b/b", "/#",  "a/b/c", "+/+/c"};

    void walk(unsigned seed);
    void step(Peer& peer);
    void connect_peer(Peer& peer);
    void leave(Peer& peer);
    void expect_publish(const std::string& topic, const std::string& payload, Qos qos);
    void read(Peer& peer);
    size_t pick(size_t below) { return random_() % below; }

    std::mt19937 random_;
    std::array<Peer, kClients> peers_;
    size_t next_payload_ = 0;
    size_t delivered_ = 0;
};

void RandomWalkTest::connect_peer(Peer& peer) {
    const Version versions[] = {Version::k31, Version::k311, Version::k5};
    ConnectOptions options;
    options.version = versions[pick(3)];
    if (options.version == Version::k5 && pick(2) == 0) {
        options.properties.receive_maximum = static_cast<uint16_t>(1 + pick(5));
    }
    auto index = static_cast<size_t>(&peer - peers_.data());
    peer.client = &connect("client" + std::to_string(index), options);
}

void RandomWalkTest::leave(Peer& peer) {
    if (pick(2) == 0) {
        peer.client->drop();
    } else {
        peer.client->send(mqtt::Disconnect{});
    }
    EXPECT_TRUE(peer.client->closed());
    ConnectionId gone = peer.client->id();
    clients_.remove_if([&](const Client& client) { return client.id() == gone; });
    peer = Peer();
}

void RandomWalkTest::expect_publish(const std::string& topic, const std::string& payload, Qos qos) {
    for (Peer& peer : peers_) {
        int granted = -1;
        for (const auto& [filter, filter_qos] : peer.filters) {
            if (mqtt::topic_matches(filter, topic)) {
                granted = std::max(granted, static_cast<int>(filter_qos));
            }
        }
        if (granted < 0) continue;
        Qos received = std::min(qos, static_cast<Qos>(granted));
        peer.expected[static_cast<size_t>(received)].push_back({payload, topic, received});
    }
}

// Takes some of what waits and compares it with the model.
void RandomWalkTest::read(Peer& peer) {
    size_t count = pick(4) == 0 ? pick(8) : 1000000;
    while (count-- > 0 && peer.client->packets_waiting() > 0) {
        if (peer.client->next_is<mqtt::Puback>()) {
            peer.client->next<mqtt::Puback>();
            ASSERT_GT(peer.pubacks_expected, 0u);
            --peer.pubacks_expected;
            continue;
        }
        auto publish = peer.client->next<mqtt::Publish>();
        auto& expected = peer.expected[static_cast<size_t>(publish.qos)];
        ASSERT_FALSE(expected.empty());
        ASSERT_EQ(publish.payload, expected.front().payload);
        ASSERT_EQ(publish.topic, expected.front().topic);
        expected.pop_front();
        ++delivered_;
        if (publish.qos == Qos::k1) peer.client->puback(publish.packet_id);
    }
}

void RandomWalkTest::step(Peer& peer) {
    if (peer.client == nullptr) return connect_peer(peer);
    switch (pick(16)) {
        case 0:
            if (pick(8) == 0) leave(peer);
            return;
        case 1: {
            // Answers stand behind messages: read those first.
            while (peer.client->packets_waiting() > 0 && !HasFatalFailure()) read(peer);
            const char* filter = kFilters[pick(std::size(kFilters))];
            Qos qos = static_cast<Qos>(pick(2));
            EXPECT_EQ(peer.client->subscribe(filter, qos), static_cast<uint8_t>(qos));
            peer.filters[filter] = qos;
            return;
        }
        case 2: {
            while (peer.client->packets_waiting() > 0 && !HasFatalFailure()) read(peer);
            const char* filter = kFilters[pick(std::size(kFilters))];
            peer.client->unsubscribe(filter);
            peer.filters.erase(filter);
            return;
        }
        case 3:
        case 4:
        case 5:
        case 6:
        case 7: {
            const char* topic = kTopics[pick(std::size(kTopics))];
            std::string payload = std::to_string(next_payload_++);
            if (pick(50) == 0) payload.append(6000, 'x');
            Qos qos = static_cast<Qos>(pick(2));
            expect_publish(topic, payload, qos);
            if (qos == Qos::k1) ++peer.pubacks_expected;
            peer.client->publish(topic, payload, qos);
            return;
        }
        case 8:
            return advance(std::chrono::milliseconds(pick(100)));
        default:
            return read(peer);
    }
}

void RandomWalkTest::walk(unsigned seed) {
    random_.seed(seed);
    config_.max_inflight = 7;
    config_.client_buffer = 1 << 20;
    start();
    for (size_t i = 0; i < kSteps && !HasFatalFailure(); ++i) step(peers_[pick(kClients)]);
    for (int round = 0; round < 1000; ++round) {
        for (Peer& peer : peers_) {
            if (peer.client != nullptr && peer.client->packets_waiting() > 0) read(peer);
        }
    }
    EXPECT_GT(delivered_, kSteps / 2);
    EXPECT_EQ(counters().dropped_slow_qos0 + counters().dropped_queue_full, 0u);
    EXPECT_EQ(counters().queued, 0u);
    EXPECT_EQ(counters().inflight, 0u);
    for (Peer& peer : peers_) {
        if (peer.client == nullptr) continue;
        EXPECT_TRUE(peer.expected[0].empty());  // nothing lost
        EXPECT_TRUE(peer.expected[1].empty());
        EXPECT_EQ(peer.pubacks_expected, 0u);
        leave(peer);
    }
    EXPECT_EQ(counters().clients, 0u);
    EXPECT_EQ(counters().subscriptions, 0u);
    EXPECT_EQ(counters().queued_bytes, 0u);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(RandomWalkTest, FastClientsLoseNothingAndNothingIsLeftBehind) {
    walk(1);
}

}  // namespace
}  // namespace pgmqtt::broker
