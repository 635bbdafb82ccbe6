// The packet identifiers of one session that wait for the client's acknowledgement.
//
// Identifiers follow a sequence, ((n - 1) mod 65535) + 1, so the window is a run of it and an
// acknowledgement is found by its distance from the front. Clients acknowledge in order
// [MQTT-4.6.0-2]; one that does not only makes the run longer. QoS 2 states and the message for a
// resend join the entry when sessions outlive connections.
#pragma once

#include <cstdint>

#include "broker/fifo.h"

namespace pgmqtt::broker {

class InflightWindow {
   public:
    size_t count() const { return waiting_; }
    bool full(size_t limit) const { return waiting_ >= limit || entries_.size() >= kIdentifiers; }

    // The next identifier, never one in use [MQTT-2.2.1-4].
    uint16_t start() {
        uint16_t id = identifier(next_);
        ++next_;
        ++waiting_;
        entries_.push_back({});
        return id;
    }

    // False when nothing waits under this identifier.
    bool finish(uint16_t id) {
        size_t index = (id + kIdentifiers - identifier(next_ - entries_.size())) % kIdentifiers;
        if (index >= entries_.size() || entries_[index].done) return false;
        entries_[index].done = true;
        --waiting_;
        while (!entries_.empty() && entries_.front().done) entries_.pop_front();
        return true;
    }

   private:
    static constexpr size_t kIdentifiers = 65535;

    struct Entry {
        bool done = false;
    };

    static uint16_t identifier(uint64_t sequence) {
        return static_cast<uint16_t>((sequence - 1) % kIdentifiers + 1);
    }

    uint64_t next_ = 1;
    size_t waiting_ = 0;
    Fifo<Entry> entries_;
};

}  // namespace pgmqtt::broker
