// Keep alive, the time a CONNECT may take, what is due of sessions, expiry of retained messages.
#include <algorithm>

#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

base::MonoTime Broker::State::next_timer() const {
    return std::min({timers_.next(), session_timers_.next(), retained_.next_expiry(), next_relief(),
                     next_given_up(), next_move(), next_overdue(), next_sys()});
}

base::MonoTime Broker::State::due(const Connection& c) {
    switch (c.phase) {
        case Phase::kAwaitingConnect:
            return c.connect_deadline;  // for all of the packet, not for each byte
        case Phase::kConnected:
            return c.patience.count() > 0 ? c.last_input + c.patience : base::kNever;
        case Phase::kAuthenticating:  // waits for us
        case Phase::kStoring:
        case Phase::kClosing:
            return base::kNever;
    }
    return base::kNever;
}

// Only a deadline before the one in the heap needs an entry of its own.
void Broker::State::arm(Connection& c) {
    base::MonoTime at = due(c);
    if (at >= c.armed) return;
    c.armed = at;
    timers_.add(at, c.id);
}

void Broker::State::tick(Now now) {
    begin_input(now);
    while (timers_.next() <= now.mono) {
        auto entry = timers_.pop();
        Connection* c = find(entry.key);
        if (c == nullptr || c->armed != entry.at) continue;  // gone, or armed anew since
        c->armed = base::kNever;
        // Whom we do not read we cannot call silent.
        constexpr uint8_t kOurFault =
            kPausedForAcknowledgements | kPausedForPending | kPausedForMemory;
        if ((c->paused & kOurFault) != 0) c->last_input = now.mono;
        if (due(*c) <= now.mono) {
            time_out(*c);
        } else {
            arm(*c);
        }
    }
    while (session_timers_.next() <= now.mono) {
        auto entry = session_timers_.pop();
        Session* session = find_session(entry.key);
        if (session != nullptr && session->armed == entry.at) session_timer(*session);
    }
    expired_.clear();
    retained_.remove_expired(now.mono, expired_);
    for (const MessagePtr& message : expired_) {
        StoreRecord record{.kind = StoreKind::kUnretain, .message = {}};
        record.message.topic = message->topic;
        pending_.add_store(Pending::kNone, record, turn_.store);
        ++counters_.dropped_expired;
    }
    expired_.clear();
    if (next_sys() <= now.mono) publish_sys();
    give_up_on_stuck();
    pump_waiting();
    relieve_memory();
    refuse_overdue();
    settle(now);
    move_some();
}

void Broker::State::time_out(Connection& c) {
    if (c.phase == Phase::kConnected) {
        ++counters_.keep_alive_timeouts;
        return disconnect_for(c, ReasonCode::kKeepAliveTimeout, "");  // [MQTT-3.1.2-22]
    }
    close(c, describe(c) + ": no CONNECT in time");
}

}  // namespace pgmqtt::broker
