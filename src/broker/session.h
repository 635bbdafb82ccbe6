// What a client has with the broker: subscriptions, what is under way, the queue behind it, its
// will. It outlives its connection by its expiry interval, section 4.1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/time.h"
#include "broker/block_queue.h"
#include "broker/deadline_heap.h"
#include "broker/delivery.h"
#include "broker/fifo.h"
#include "broker/inflight_window.h"
#include "broker/message.h"
#include "broker/retained_store.h"
#include "broker/stored_entry.h"
#include "broker/subscription_tree.h"

namespace pgmqtt::broker {

struct Connection;

// A QoS 2 PUBLISH from the client whose PUBREL has not come: another with its identifier is the
// same message [MQTT-4.3.3-10].
struct ReceivedPublish {
    bool done = false;       // PUBREC may be sent, or was
    bool owed = false;       // stands in Connection::owed
    bool counted = false;    // takes from the quota of this connection
    uint64_t stored_id = 0;  // of its kReceived record; 0: none
    bool releasing = false;  // PUBREL came; PUBCOMP waits for the store
};

// Retained messages that a new subscription still has to be sent. They are looked for as the client
// takes them: nothing of them is kept here but where the search stands.
struct RetainedRun {
    std::string filter;
    bool is_sys = false;  // of $SYS: whatever is true when it is sent
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
    static constexpr uint32_t kNeverExpires = UINT32_MAX;

    uint64_t id = 0;  // in this broker and in the store
    std::string client_id;
    std::string username;              // the role it belongs to; empty: anonymous
    Connection* connection = nullptr;  // null: disconnected
    bool persistent = false;           // its changes go to the store, from first to last

    uint32_t expiry_interval = 0;  // seconds
    base::WallTime created_at{};
    base::WallTime disconnected_at = base::WallTime::max();  // max: connected
    base::MonoTime expires = base::kNever;

    MessagePtr will;
    uint32_t will_delay = 0;                 // seconds
    base::MonoTime will_due = base::kNever;  // once disconnected

    std::unordered_map<std::string, Subscription, base::SeededBytesHash, std::equal_to<>>
        subscriptions;
    size_t subscription_levels = 0;

    InflightWindow window;
    // What waits for the window: first what is here, or was asked for, then what is only in the
    // store. All of far is behind all of queue; sequences grow from front to back.
    BlockQueue<Delivery> queue;
    uint64_t dropped = 0;  // messages, since this broker knows the session
    BlockQueue<StoredEntry> far;
    std::unordered_map<uint64_t, std::vector<uint32_t>> far_identifiers;  // by sequence
    uint64_t queued_bytes = 0;                                            // of both
    uint64_t far_bytes = 0;
    size_t asked = 0;             // messages that the store was asked for
    bool incomplete = false;      // some that are near were not asked for yet
    bool waits_to_fetch = false;  // is in State::to_fetch_
    // QoS 0 has its place in the queue only behind retained messages, to keep the order.
    size_t queued_qos0 = 0;
    Fifo<RetainedRun> retained;
    std::unordered_map<uint16_t, ReceivedPublish> received;  // by packet identifier

    // See expiry.cpp.
    uint32_t timer_place = kNoPlace;  // in State::session_timers_
    bool in_slices = false;           // is in State::slices_: its queue is looked through, or ends
    bool ends_in_slices = false;
    uint64_t woken_by = 0;  // the store batch after which it goes on: noted once

    // See congestion.cpp.
    bool congested = false;  // is in State::congested_
    bool stuck = false;      // took nothing for long: nobody waits for it
    base::MonoTime took_at{};

    RouteMark mark;

    size_t queued() const { return queue.size() + far.size(); }
    // When something in its queue expires.
    base::MonoTime next_expiry() const { return std::min(queue.next_expiry(), far.next_expiry()); }
};

// A sink as a subscriber; one for all filters of the same sink.
struct Sink {
    uint32_t id = 0;
    RouteMark mark;
};

}  // namespace pgmqtt::broker
