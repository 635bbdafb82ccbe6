// Keep alive, and the time a CONNECT may take. See expiry.cpp for sessions and messages.
#include <algorithm>

#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

base::MonoTime Broker::State::next_timer() const {
    return std::min({timers_.next(), session_timers_.next(), next_slice(), next_relief(),
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

// What is due later than the heap says is put in when it comes up: a packet costs no heap
// operation.
void Broker::State::arm(Connection& c) {
    base::MonoTime at = due(c);
    if (at < timers_.deadline(c)) timers_.set(c, at);
}

void Broker::State::tick(Now now) {
    begin_input(now);
    look_at_connections();
    look_at_sessions();
    expire_slice();
    if (next_sys() <= now.mono) publish_sys();
    give_up_on_stuck();
    pump_waiting();
    relieve_memory();
    refuse_overdue();
    settle(now);
    move_some();
}

void Broker::State::look_at_connections() {
    constexpr size_t kInTurn = 1000;  // of many that fell silent at once
    for (size_t left = kInTurn; left > 0 && timers_.next() <= now_.mono; --left) {
        Connection& c = timers_.front();
        timers_.remove(c);
        // Whom we do not read we cannot call silent.
        constexpr uint8_t kOurFault =
            kPausedForAcknowledgements | kPausedForPending | kPausedForMemory;
        if ((c.paused & kOurFault) != 0) c.last_input = now_.mono;
        if (due(c) <= now_.mono) {
            time_out(c);
        } else {
            arm(c);
        }
    }
}

void Broker::State::time_out(Connection& c) {
    if (c.phase == Phase::kConnected) {
        ++counters_.keep_alive_timeouts;
        return disconnect_for(c, ReasonCode::kKeepAliveTimeout, "");  // [MQTT-3.1.2-22]
    }
    close(c, describe(c) + ": no CONNECT in time");
}

}  // namespace pgmqtt::broker
