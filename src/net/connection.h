// What the server knows about one connection, and the table of all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "net/input_buffer.h"
#include "net/transport.h"

namespace pgmqtt::net {

using base::ConnectionId;

enum class Phase : uint8_t {
    kFree,
    kHandshake,  // the transport's
    kOpen,
    kClosing,   // sending the rest of the outbox; input is discarded
    kDraining,  // we said farewell; input is discarded until the peer closes or linger is over
    kDead,      // no socket any more; on_closed() is due
};

// Small, because there are tens of thousands and most are idle.
struct Connection {
    std::unique_ptr<Transport> transport;
    InputBuffer input;
    size_t input_counted = 0;  // its share of Server::input_bytes()
    base::MonoTime linger_until;
    const char* close_reason = nullptr;  // while closing
    uint32_t generation = 1;
    uint32_t linger_previous = UINT32_MAX;
    uint32_t linger_next = UINT32_MAX;
    int write_error = 0;
    Phase phase = Phase::kFree;

    bool queued : 1 = false;  // in the server's queue
    bool paused : 1 = false;  // by the handler
    bool readable : 1 =
        false;  // the socket may have bytes; cleared when it had fewer than asked for
    bool writable : 1 = false;    // reported since the last write
    bool hangup : 1 = false;      // the stream's end was reported: read until it is seen
    bool ended : 1 = false;       // the stream's end was seen
    bool starved : 1 = false;     // not read: it holds much, and all together hold too much
    bool show_again : 1 = false;  // resumed: the handler has not seen the rest of the input since

    bool output_blocked : 1 = false;
    bool output_waits_for_read : 1 = false;  // the transport's wish: see IoResult
    bool input_waits_for_write : 1 = false;
    // What the poller was told.
    bool watching_read : 1 = false;
    bool watching_write : 1 = false;

    bool closing() const { return phase == Phase::kClosing || phase == Phase::kDraining; }
    bool alive() const { return phase != Phase::kFree && phase != Phase::kDead; }
};

// Slots are reused, with a new generation each time. References into the table are good until the
// next add().
class ConnectionTable {
   public:
    // Throws std::bad_alloc before anything has changed.
    ConnectionId add(std::unique_ptr<Transport>& transport);
    void remove(uint32_t slot);

    // Null unless alive: dead ids are ignored everywhere.
    Connection* find(ConnectionId id);
    Connection& at(uint32_t slot) { return slots_[slot]; }
    const Connection& at(uint32_t slot) const { return slots_[slot]; }
    ConnectionId id_of(uint32_t slot) const { return {slot, slots_[slot].generation}; }

    size_t size() const { return slots_.size() - free_.size(); }
    size_t slots() const { return slots_.size(); }

    // The lingering, in the order of their deadlines: all linger equally long. Part of the slots,
    // so that closing allocates nothing.
    void linger(uint32_t slot, base::MonoTime until);
    uint32_t first_lingering() const { return linger_first_; }
    static constexpr uint32_t kNone = UINT32_MAX;

    // Not lingering any longer, or never was.
    void unlinger(uint32_t slot);

   private:
    std::vector<Connection> slots_;
    std::vector<uint32_t> free_;
    uint32_t linger_first_ = kNone;
    uint32_t linger_last_ = kNone;
};

}  // namespace pgmqtt::net
