// What one session has under way with QoS 1 and 2: PUBLISHes until PUBACK or PUBREC, PUBRELs until
// PUBCOMP. Outlives the connection, and knows what of it was sent on the current one: that is what
// counts against the client's Receive Maximum [MQTT-3.3.4-9].
//
// Identifiers follow a sequence, ((n - 1) mod 65535) + 1, and clients acknowledge in order
// [MQTT-4.6.0-2], so an acknowledgement is found at the front. One out of order costs a walk.
#pragma once

#include <cstdint>
#include <optional>

#include "broker/delivery.h"
#include "broker/fifo.h"

namespace pgmqtt::broker {

// A QoS 2 delivery behind its PUBREC.
struct Release {
    uint64_t sequence = 0;
    StoredAs stored{};  // the message, though nobody needs it any more
    uint32_t bytes = 0;
    base::MonoTime expires = base::kNever;
    uint64_t batch = 0;    // PUBREL does not leave before that is stored
    bool counted = false;  // its PUBLISH was sent on this connection
    bool is_sent = false;  // on this connection
};

class InflightWindow {
   public:
    static constexpr size_t kNone = SIZE_MAX;

    // Under way in all.
    size_t size() const { return publishes_.size() + releases_.size(); }
    // PUBLISHes sent on this connection that take from the Receive Maximum.
    size_t quota_used() const { return sent_ + counted_releases_; }
    // Whether one more may enter for a client with this limit.
    bool has_room(size_t limit) const {
        return publishes_.size() + counted_releases_ < limit && size() < kIdentifiers;
    }

    // The next of the session's sequence whose identifier is free [MQTT-2.2.1-4].
    uint64_t take_sequence();
    // After a restart: behind this one.
    void skip_sequence(uint64_t sequence) { next_ = std::max(next_, sequence + 1); }
    bool in_use(uint64_t sequence);

    // In the order in which they are to be sent. A delivery without a sequence gets one.
    void push(Delivery delivery);
    // One that leaves at once: its identifier.
    uint16_t push_sent(Delivery delivery);

    // The first that was not sent on this connection; null: none.
    Delivery* next_unsent();
    void mark_sent() { ++sent_; }
    Delivery take_unsent() { return publishes_.take(sent_); }
    Delivery take_unsent(size_t index) { return publishes_.take(index); }

    // Index of the PUBLISH with this sequence, or kNone: they are in its order.
    size_t find(uint64_t sequence) const;
    // Index of the sent PUBLISH with this identifier, or kNone.
    size_t find_sent(uint16_t id);
    Delivery& publish(size_t index) { return publishes_[index]; }
    Delivery take_sent(size_t index);
    size_t sent_count() const { return sent_; }
    size_t publish_count() const { return publishes_.size(); }

    void push_release(Release release);
    size_t find_release(uint16_t id);
    size_t release_count() const { return releases_.size(); }
    Release& release(size_t index) { return releases_[index]; }
    Release take_release(size_t index);

    // The connection is gone: all of it is to be sent again on the next one.
    void connection_lost();

    static uint16_t identifier(uint64_t sequence) {
        return static_cast<uint16_t>((sequence - 1) % kIdentifiers + 1);
    }

   private:
    static constexpr size_t kIdentifiers = 65535;

    void find_lowest();

    uint64_t next_ = 1;
    uint64_t lowest_ = 1;  // no sequence in here is below
    Fifo<Delivery> publishes_;
    size_t sent_ = 0;         // the first so many of them
    Fifo<Release> releases_;  // in the order of their PUBRECs [MQTT-4.6.0-4]
    size_t counted_releases_ = 0;
};

}  // namespace pgmqtt::broker
