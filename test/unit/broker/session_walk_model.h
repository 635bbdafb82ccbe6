// The model of session_walk_test.cpp: what each client has coming to it, and what it does itself.
#pragma once

#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "broker_fixture.h"

namespace pgmqtt::broker {

constexpr size_t kPeers = 10;
constexpr uint32_t kShortExpiry = 20;   // seconds; time goes on by parts of one
constexpr uint32_t kLongExpiry = 5000;  // also what sessions of 3.x get
constexpr uint16_t kMaxInflight = 7;

inline constexpr const char* kTopics[] = {"a", "a/b", "a/c", "b"};
inline constexpr const char* kFilters[] = {"a", "a/+", "a/#", "+", "#", "b", "+/b"};

inline unsigned long setting(const char* name, unsigned long otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoul(value, nullptr, 10) : otherwise;
}

// A message that has to come.
struct Expected {
    std::string payload;
    std::string topic;
    Qos qos = Qos::k0;
    uint64_t batch = 0;  // of the store; 0: the session is not persistent
    base::MonoTime expires = base::kNever;
};

// What a client is publishing.
struct Outgoing {
    uint16_t packet_id = 0;
    std::string topic;
    std::string payload;
    Qos qos = Qos::k1;
    std::optional<uint32_t> expiry;  // seconds; not of QoS 0
    bool released = false;           // QoS 2: PUBREC came
};

// A QoS 2 PUBLISH as the broker must remember it.
struct Remembered {
    uint64_t batch = 0;
    uint64_t released = 0;  // batch that says so; 0: not yet
};

// Both ends of a session.
struct ModelSession {
    bool exists = false;
    bool persistent = false;
    uint32_t expiry = 0;
    base::MonoTime expires = base::kNever;
    std::map<std::string, Qos> filters;
    std::deque<Expected> expected;           // QoS 1 and 2, one order for both
    std::map<uint16_t, std::string> latest;  // what came under each identifier
    std::set<uint16_t> incomplete;           // QoS 2 identifiers whose PUBREL has not come
    std::deque<Outgoing> outgoing;
    std::map<uint16_t, Remembered> remembered;

    // What expired before `payload` came instead.
    size_t skip_expired(ByteView payload, base::MonoTime now) {
        size_t before = expected.size();
        while (!expected.empty() && expected.front().expires <= now &&
               expected.front().payload != payload) {
            expected.pop_front();
        }
        return before - expected.size();
    }
};

struct Walker {
    Client* client = nullptr;
    bool online = false;  // CONNACK came
    ModelSession session;
    std::deque<Expected> expected_qos0;
    std::deque<std::pair<Qos, uint16_t>> acks;  // not sent yet
    size_t receive_maximum = 65535;
    size_t last_packet_id = 0;

    void lose_connection() {
        online = false;
        expected_qos0.clear();
        acks.clear();
    }
};

}  // namespace pgmqtt::broker
