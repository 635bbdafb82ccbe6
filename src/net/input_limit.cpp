// Limits::max_input_total: how much all connections together may have sent of packets that are not
// complete. Whoever announces much and sends it must not take the memory of the others.
#include <algorithm>

#include "net/server_state.h"

namespace pgmqtt::net {

bool Server::State::has_input_room() const {
    return input_bytes + kReadBytes <= limits.max_input_total;
}

// Held by one connection, this is nobody's fault.
size_t Server::State::input_share() const {
    return std::max(limits.max_input_total / 2 / std::max<size_t>(table.size(), 1), kMovedInput);
}

// Room for the rest of a packet, found at once: finding it step by step copies what is there.
size_t Server::State::room_for(size_t arrived) const {
    if (arrived < kMovedInput || input_bytes > limits.max_input_total / kBelieved) return 0;
    return std::min({expected_, kBelieved * arrived, limits.max_input});
}

bool Server::State::may_read(uint32_t slot) {
    Connection& c = table.at(slot);
    const bool may = has_input_room() || slot == favoured_ || c.input.size() <= input_share();
    if (may == !c.starved) return may;
    if (!may) starved_.push_back(slot);
    c.starved = !may;
    watch(slot, may, c.watching_write);
    return may;
}

// Everybody when there is room again. Until then one at a time: if all stopped, none would ever
// complete its packet and give memory back.
void Server::State::feed_starved() {
    std::erase_if(starved_, [this](uint32_t slot) { return !table.at(slot).starved; });
    if (favoured_ != ConnectionTable::kNone) {
        const Connection& c = table.at(favoured_);
        if (c.input.size() <= input_share() || c.paused) {
            favoured_ = ConnectionTable::kNone;
        } else if (favoured_until_ <= base::MonoTime::clock::now()) {
            finish(favoured_, "no memory for a packet that takes so long");
        }
    }
    if (has_input_room()) {
        favoured_ = ConnectionTable::kNone;
        for (const uint32_t slot : starved_) feed(slot);
        starved_.clear();
    } else if (favoured_ == ConnectionTable::kNone && !starved_.empty()) {
        favoured_ = largest_starved();
        favoured_until_ = base::MonoTime::clock::now() + std::chrono::milliseconds(limits.stall_ms);
        feed(favoured_);
    }
}

void Server::State::feed(uint32_t slot) {
    Connection& c = table.at(slot);
    c.starved = false;
    watch(slot, true, c.watching_write);
    enqueue(slot);
}

uint32_t Server::State::largest_starved() const {
    return *std::max_element(starved_.begin(), starved_.end(), [this](uint32_t a, uint32_t b) {
        return table.at(a).input.size() < table.at(b).input.size();
    });
}

}  // namespace pgmqtt::net
