// A message on its way to one client, with what its subscription makes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "broker/message.h"
#include "broker/pending.h"
#include "broker/store_record.h"

namespace pgmqtt::broker {

// A message in the store.
struct StoredAs {
    uint64_t id = 0;  // 0: not there
    Durability durability = Durability::kDurable;
};

struct Delivery {
    // Null when it is only in the store, or in flight when nobody can ask for it again.
    MessagePtr message{};
    StoredAs stored{};
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
    bool may_be_sent = false;  // a client may have it: says DUP, and QoS 2 does not expire
    bool sent_is_stored = false;
    bool asked = false;  // the store for the message, on this connection
    // As it was published: another member of a group may be granted more.
    mqtt::Qos published_qos = mqtt::Qos::k0;
    bool published_retain = false;
    std::vector<uint32_t> identifiers{};
    uint64_t sequence = 0;  // 0: gets one when it enters the window
    // In a queue, which is sorted by it: its sequence; without one, that of the one before it.
    uint64_t order = 0;
    uint64_t batch = 0;  // of the store; it does not leave before that is stored
    uint64_t share = 0;  // ShareGroup::id, when it is for one of a group; forgotten by a restart
    // Of the message, which may not be here.
    uint32_t bytes = 0;
    base::MonoTime expires = base::kNever;
    // The publish that is done when this and its other deliveries are, stored or not.
    Pending::Ticket publish{};

    bool is_missing() const { return !message && stored.id != 0; }
    bool expired(base::MonoTime now) const { return expires <= now; }
};

}  // namespace pgmqtt::broker
