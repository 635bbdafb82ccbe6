#include "net/connection.h"

#include <utility>

namespace pgmqtt::net {

ConnectionId ConnectionTable::add(std::unique_ptr<Transport>& transport) {
    if (free_.empty()) {
        // Room to free every slot there will be, so that remove() cannot fail.
        if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 16);
        slots_.emplace_back();
        free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    Connection& connection = slots_[slot];
    connection.transport = std::move(transport);
    connection.phase = Phase::kHandshake;
    return {slot, connection.generation};
}

void ConnectionTable::remove(uint32_t slot) {
    unlinger(slot);
    const uint32_t generation = slots_[slot].generation;
    // Still in the server's queue: the next owner of the slot is then looked at for nothing, once.
    const bool queued = slots_[slot].queued;
    slots_[slot] = Connection{};
    slots_[slot].generation = generation + 1;
    slots_[slot].queued = queued;
    free_.push_back(slot);
}

Connection* ConnectionTable::find(ConnectionId id) {
    if (id.slot >= slots_.size()) return nullptr;
    Connection& connection = slots_[id.slot];
    return connection.generation == id.generation && connection.alive() ? &connection : nullptr;
}

void ConnectionTable::linger(uint32_t slot, base::MonoTime until) {
    Connection& connection = slots_[slot];
    connection.linger_until = until;
    connection.linger_previous = linger_last_;
    (linger_last_ == kNone ? linger_first_ : slots_[linger_last_].linger_next) = slot;
    linger_last_ = slot;
}

void ConnectionTable::unlinger(uint32_t slot) {
    Connection& connection = slots_[slot];
    if (linger_first_ != slot && connection.linger_previous == kNone) return;
    const uint32_t previous = connection.linger_previous;
    const uint32_t next = connection.linger_next;
    (previous == kNone ? linger_first_ : slots_[previous].linger_next) = next;
    (next == kNone ? linger_last_ : slots_[next].linger_previous) = previous;
    connection.linger_previous = connection.linger_next = kNone;
}

}  // namespace pgmqtt::net
