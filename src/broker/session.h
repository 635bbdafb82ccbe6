// What a client has with the broker: subscriptions, the window of unacknowledged messages, the
// queue behind it. A session is not its connection, though for now it ends with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/time.h"
#include "broker/fifo.h"
#include "broker/inflight_window.h"
#include "broker/message.h"
#include "broker/retained_store.h"
#include "broker/subscription_tree.h"

namespace pgmqtt::broker {

struct Connection;

// A message on its way to one client, with what its subscription makes of it.
struct Delivery {
    MessagePtr message;
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
    std::vector<uint32_t> identifiers;
};

// Retained messages that a new subscription still has to be sent. They are looked for as the client
// takes them: nothing of them is kept here but where the search stands.
struct RetainedRun {
    std::string filter;
    mqtt::Qos qos = mqtt::Qos::k0;
    uint32_t identifier = 0;
    uint64_t since = 0;  // what was retained later the subscription got as it was published
    std::optional<RetainedCursor> cursor;
    MessagePtr next;
};

// Where a publish met this subscriber while it is routed: see route.cpp.
struct RouteMark {
    uint64_t route = 0;
    uint32_t target = 0;
};

struct Session {
    std::string client_id;
    std::string username;  // empty: anonymous
    Connection* connection = nullptr;

    std::unordered_map<std::string, Subscription, base::SeededBytesHash, std::equal_to<>>
        subscriptions;
    size_t subscription_levels = 0;

    InflightWindow window;
    Fifo<Delivery> queue;
    uint64_t queued_bytes = 0;
    // QoS 0 has its place in the queue only behind retained messages, to keep the order.
    size_t queued_qos0 = 0;
    Fifo<RetainedRun> retained;

    // See congestion.cpp.
    bool congested = false;  // is in State::congested_
    bool stuck = false;      // took nothing for long: nobody waits for it
    base::MonoTime took_at{};

    RouteMark mark;
};

// A sink as a subscriber; one for all filters of the same sink.
struct Sink {
    uint32_t id = 0;
    RouteMark mark;
};

}  // namespace pgmqtt::broker
