// What ends by itself: sessions, delayed wills, messages in queues, retained messages. Whoever is
// due stands first in a heap, so nobody else is looked at. Of what is due at the same moment a turn
// does only so much; the ends that the store has to write come in slices, and a slice waits until
// the one before is stored: a publish meanwhile waits for that one only, not for a million.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

// In one turn, some milliseconds: entries of queues and retained messages that are looked at, and
// what is due of sessions, which costs more. To end a delivery takes up to half a microsecond.
constexpr size_t kLooksInTurn = 5000;
constexpr size_t kLooksOfSession = 20;

// A session with a longer queue ends in slices.
constexpr size_t kEndsAtOnce = 1000;

bool must_stay(bool may_be_sent, Qos qos) {
    return may_be_sent && qos == Qos::k2;  // [MQTT-4.3.3-7]
}

}  // namespace

// By the clock of the store's entries, for both: ten times a second is often enough.
base::MonoTime Broker::State::deadline(const Delivery& delivery) const {
    if (must_stay(delivery.may_be_sent, delivery.qos)) return base::kNever;
    return far_clock_.get(far_clock_.put(delivery.expires));
}

base::MonoTime Broker::State::deadline(const StoredEntry& entry) const {
    if (must_stay(entry.may_be_sent, entry.qos)) return base::kNever;
    return far_clock_.get(entry.expires);
}

base::MonoTime Broker::State::due(const Session& session) {
    if (session.ends_in_slices) return base::kNever;
    base::MonoTime at = session.in_slices ? base::kNever : session.next_expiry();
    if (session.connection == nullptr) at = std::min({at, session.expires, session.will_due});
    return at;
}

// What is due later than the heap says is put in when it comes up.
void Broker::State::arm(Session& session) {
    base::MonoTime at = due(session);
    if (at < session_timers_.deadline(session)) session_timers_.set(session, at);
}

void Broker::State::look_at_sessions() {
    size_t budget = kLooksInTurn;
    while (session_timers_.next() <= now_.mono && budget > 0) {
        Session& session = session_timers_.front();
        session_timers_.remove(session);
        budget -= std::min(budget, kLooksOfSession + session.subscriptions.size());
        session_timer(session, budget);
    }
}

void Broker::State::session_timer(Session& session, size_t& budget) {
    if (is_over(session)) {
        budget -= std::min(budget, session.queued());
        return expire_session(session);
    }
    if (session.connection == nullptr && session.will_due <= now_.mono) {
        will_is_due(session);
        save_session(session);
    }
    if (session.next_expiry() <= now_.mono) put_in_slices(session);
    arm(session);
}

// Also when nobody has come to end it yet.
bool Broker::State::is_over(const Session& session) const {
    return session.connection == nullptr && session.expires <= now_.mono;
}

void Broker::State::expire_session(Session& session) {
    if (session.ends_in_slices) return;
    ++counters_.sessions_expired;
    end_early(session);
}

// Whatever its expiry. Its connection has left before.
void Broker::State::end_early(Session& session) {
    if (session.ends_in_slices) return;
    if (session.queued() <= kEndsAtOnce) return end_session(session);
    end_in_slices(session);
}

// First all but its queue, so that nothing more comes to it, also not what it leaves to others. Who
// loads it after a crash finds that it is over.
void Broker::State::end_in_slices(Session& session) {
    if (session.will) will_is_due(session);
    session.expiry_interval = 0;
    session.expires = now_.mono;
    session.disconnected_at = std::min(session.disconnected_at, now_.wall);
    save_session(session);
    forget_subscriptions(session);
    session.ends_in_slices = true;
    put_in_slices(session);
}

void Broker::State::put_in_slices(Session& session) {
    if (session.in_slices) return;
    session.in_slices = true;
    slices_.push_back(session.id);
}

base::MonoTime Broker::State::next_slice() const {
    if (slice_batch_ > pending_.stored_batch()) return base::kNever;
    return slices_.empty() ? retained_.next_expiry() : base::MonoTime{};
}

void Broker::State::expire_slice() {
    if (slice_batch_ > pending_.stored_batch()) return;
    uint32_t records = turn_.store.count();
    size_t budget = kLooksInTurn;
    while (!slices_.empty() && budget > 0) {
        Session* session = find_session(slices_.front());
        if (session != nullptr && !expire_slice(*session, budget)) break;
        slices_.pop_front();
    }
    expire_retained();
    if (turn_.store.count() > records) slice_batch_ = pending_.store_batch();
}

// True when it is done with.
bool Broker::State::expire_slice(Session& session, size_t& budget) {
    if (session.ends_in_slices) {
        if (!shorten(session, budget)) return false;
        end_session(session);
        return true;
    }
    drop_expired(session, budget);
    if (session.next_expiry() <= now_.mono) return false;
    session.in_slices = false;
    arm(session);
    return true;
}

// True when it is short enough to end at once.
bool Broker::State::shorten(Session& session, size_t& budget) {
    for (; session.queued() > kEndsAtOnce; --budget) {
        if (budget == 0) return false;
        Delivery delivery = take_queued(session);
        hand_over(delivery);
        end_delivery(session, delivery);
    }
    return true;
}

// Nobody may ever come for what has expired in a queue: it leaves without that.
void Broker::State::drop_expired(Session& session, size_t& budget) {
    session.queue.expire(
        now_.mono, budget, [this](const Delivery& delivery) { return deadline(delivery); },
        [&](const Delivery& delivery) {
            if (delivery.qos == Qos::k0) --session.queued_qos0;
            count_taken(session, delivery.bytes);
            count_dropped(session, counters_.dropped_expired);
            end_delivery(session, delivery);
        });
    session.far.expire(
        now_.mono, budget, [this](const StoredEntry& entry) { return deadline(entry); },
        [&](const StoredEntry& entry) {
            forget_far(session, entry);
            count_taken(session, entry.bytes);
            count_dropped(session, counters_.dropped_expired);
            end_delivery(session.id, entry.sequence, {entry.message_id, entry.durability});
        });
}

void Broker::State::expire_retained() {
    size_t budget = kLooksInTurn;
    expired_.clear();
    retained_.remove_expired(now_.mono, budget, expired_);
    for (const MessagePtr& message : expired_) {
        StoreRecord record{.kind = StoreKind::kUnretain, .message = {}};
        record.message.topic = message->topic;
        pending_.add_store(Pending::kNone, record, turn_.store);
        ++counters_.dropped_expired;
    }
    expired_.clear();
}

}  // namespace pgmqtt::broker
