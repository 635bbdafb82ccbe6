// Config::max_memory: what messages, unsent output and publishes that wait for a worker may take
// together. Retained messages have limits of their own.
//
// Crowded, at three quarters: queues are full, policy decides what that means; QoS 0 passes by who
// is behind. So queues alone, of sessions that never come back, do not get beyond this. Full, at
// seven eighths: what is left to grow is what clients have under way, so publishers are paused. Not
// for good: the acknowledgements that give memory back may stand behind a PUBLISH in a client's
// stream. Each paused publisher gets one message in, from time to time, until memory is free.
#include <algorithm>

#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

constexpr std::chrono::milliseconds kThrottle{50};
constexpr size_t kThrottleShare = 16;  // of those who are paused, each time

// Output one client may have unsent when memory is scarce.
constexpr size_t kScarceOutput = 16 << 10;

}  // namespace

uint64_t Broker::State::memory_used() const {
    return message_bytes_ - retained_.charged() + state_bytes_ + output_bytes_ + pending_.bytes() +
           (counters_.queued - far_entries_) * sizeof(Delivery) +
           far_entries_ * sizeof(StoredEntry) + move_refs_ * sizeof(MoveRef);
}

Broker::State::Pressure Broker::State::pressure() const {
    uint64_t eighth = config_.max_memory / 8;
    uint64_t used = memory_used();
    if (used <= 6 * eighth) return Pressure::kNone;
    return used <= 7 * eighth ? Pressure::kCrowded : Pressure::kFull;
}

// Whether QoS 0 is not for this client now.
bool Broker::State::is_behind(const Connection& c) const {
    if (!c.behind && c.outbox.empty()) return false;
    Pressure now = pressure();
    return now == Pressure::kFull || (now == Pressure::kCrowded && c.behind);
}

// What of its outbox a client must have taken before more than QoS 0 follows.
size_t Broker::State::output_limit() const {
    switch (pressure()) {
        case Pressure::kNone:
            return config_.client_buffer;
        case Pressure::kCrowded:
            return std::min(config_.client_buffer, kScarceOutput);
        case Pressure::kFull:
            return 0;
    }
    return 0;
}

void Broker::State::count_output(Connection& c) {
    size_t size = c.outbox.owned_size();
    output_bytes_ += size - c.output_counted;
    c.output_counted = size;
}

// The transport had its chance. When it took more than client_buffer held back, the rest follows.
void Broker::State::note_sent(Connection& c) {
    c.dirty = false;
    count_output(c);
    c.behind = !c.outbox.empty();
    if (c.behind || c.phase != Phase::kConnected) return;
    Session& session = *c.session;
    bool more = session.congested || session.queued() > 0 || !session.retained.empty() ||
                session.window.next_unsent() != nullptr;
    if (more) pump_later(c);
}

void Broker::State::pump_later(Connection& c) {
    if (c.pumps_later) return;
    c.pumps_later = true;
    to_pump_.push_back(c.id);
}

// As far as the search goes in one turn; who is left is first in the next.
void Broker::State::pump_waiting() {
    std::vector<ConnectionId> waiting = std::exchange(to_pump_, {});
    size_t i = 0;
    for (; i < waiting.size() && search_budget_ > 0; ++i) {
        Connection* c = find(waiting[i]);
        if (c == nullptr) continue;
        c->pumps_later = false;
        if (c->phase == Phase::kConnected) pump(*c->session);
    }
    to_pump_.insert(to_pump_.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(i),
                    waiting.end());
}

bool Broker::State::takes_publishes() const {
    return congested_.empty() && (sql_may_publish_ || pressure() != Pressure::kFull);
}

base::MonoTime Broker::State::next_relief() const {
    if (!to_pump_.empty()) return base::MonoTime{};
    if (paused_for_memory_.empty() && sql_may_publish_) return base::kNever;
    Pressure now = pressure();
    if (now == Pressure::kFull) return throttled_until_;
    return paused_for_memory_.empty() ? base::kNever : base::MonoTime{};
}

void Broker::State::relieve_memory() {
    size_t count = paused_for_memory_.size();
    if (pressure() == Pressure::kFull) {
        if (now_.mono < throttled_until_) return;
        throttled_until_ = now_.mono + kThrottle;
        count = std::min(count, count / kThrottleShare + 1);
    }
    sql_may_publish_ = true;
    for (; count > 0; --count) {
        ConnectionId id = paused_for_memory_.front();
        paused_for_memory_.pop_front();
        if (Connection* c = find(id)) resume(*c, kPausedForMemory);
    }
}

}  // namespace pgmqtt::broker
