// A client that takes its messages more slowly than they come makes publishes from SQL wait:
// batches are not taken, nor reported done, while its queue is more than half full, or for QoS 0
// its outbox. So a million rows in one transaction reach a subscriber of modest speed without
// touching queue_policy, which is for clients that are away or stuck. A client that takes nothing
// for kPatience is stuck: nobody waits for it.
#include <algorithm>

#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

constexpr std::chrono::seconds kPatience{5};

}  // namespace

// Half full, or, below a quarter, relieved: so that batches do not stop and go with every message.
bool Broker::State::queue_exceeds(const Session& session, unsigned divisor) const {
    return session.queued() > config_.max_queued_messages / divisor ||
           session.queued_bytes > config_.max_queued_bytes / divisor;
}

bool Broker::State::output_exceeds(const Session& session, unsigned divisor) const {
    const Connection* c = online(session);
    return c != nullptr && c->outbox.size() > config_.client_buffer / divisor;
}

// Whether what the client has not taken is reason to drop a message of QoS 0.
bool Broker::State::overflows(const Session& session, const Connection& c) const {
    if (is_behind(c)) return true;
    bool waited_for = route_.paced && !session.stuck;
    return c.outbox.size() > config_.client_buffer && !waited_for;
}

// What others publish in one turn may be more than client_buffer: that alone makes nobody slow. Who
// has taken all that it was sent gets it now, and not at the end of the turn.
bool Broker::State::still_overflows(const Session& session, Connection& c) {
    if (!overflows(session, c)) return false;
    if (output_ == nullptr || c.behind) return true;
    output_->flush(c.id);
    count_output(c);
    c.behind = !c.outbox.empty();
    return overflows(session, c);
}

void Broker::State::note_queued(Session& session) {
    if (session.connection == nullptr) return;
    if (queue_exceeds(session, 2)) congest(session);
}

void Broker::State::note_output(Session& session) {
    if (route_.paced && output_exceeds(session, 2)) congest(session);
}

void Broker::State::congest(Session& session) {
    if (session.congested || session.stuck) return;
    session.congested = true;
    session.took_at = now_.mono;
    congested_.push_back(&session);
}

void Broker::State::note_taken(Session& session) {
    session.took_at = now_.mono;
    session.stuck = false;
    relieve_congestion(session);
}

void Broker::State::relieve_congestion(Session& session) {
    if (!session.congested || queue_exceeds(session, 4) || output_exceeds(session, 4)) return;
    forget_congestion(session);
}

void Broker::State::forget_congestion(Session& session) {
    session.stuck = false;
    if (!session.congested) return;
    session.congested = false;
    std::erase(congested_, &session);
    if (congested_.empty()) report_sql_batches();
}

base::MonoTime Broker::State::next_given_up() const {
    base::MonoTime next = base::kNever;
    for (const Session* session : congested_) next = std::min(next, session->took_at + kPatience);
    return next;
}

void Broker::State::give_up_on_stuck() {
    for (size_t i = congested_.size(); i-- > 0;) {
        Session& session = *congested_[i];
        if (session.took_at + kPatience > now_.mono) continue;
        forget_congestion(session);
        session.stuck = true;
    }
}

}  // namespace pgmqtt::broker
