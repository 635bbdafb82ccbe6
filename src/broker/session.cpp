// Sessions from their first CONNECT to their expiry, section 4.1.
#include "broker/session.h"

#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

Session* Broker::State::find_session(ByteView client_id) {
    auto found = sessions_.find(client_id);
    return found != sessions_.end() ? found->second.get() : nullptr;
}

Session* Broker::State::find_session(uint64_t id) {
    auto found = sessions_by_id_.find(id);
    return found != sessions_by_id_.end() ? found->second : nullptr;
}

// The connection that takes packets for the session; null while there is none.
Connection* Broker::State::online(const Session& session) {
    Connection* c = session.connection;
    return c != nullptr && c->phase == Phase::kConnected ? c : nullptr;
}

Session& Broker::State::begin_session(ByteView client_id, ByteView username,
                                      uint32_t expiry_interval) {
    Session& session = add_session(++last_id_, client_id, username);
    session.persistent = expiry_interval > 0;
    session.created_at = now_.wall;
    return session;
}

Session& Broker::State::add_session(uint64_t id, ByteView client_id, ByteView username) {
    auto added = std::make_unique<Session>();
    Session& session = *added;
    session.id = id;
    session.client_id = client_id;
    session.username = username;
    session.subscriptions = decltype(session.subscriptions)(0, base::SeededBytesHash{seed_});
    sessions_.emplace(session.client_id, std::move(added));
    sessions_by_id_.emplace(id, &session);
    state_bytes_ += session_cost(client_id, username);
    return session;
}

// Its connection has left before. A will that still waits is due now [MQTT-3.1.2-10].
void Broker::State::end_session(Session& session) {
    if (session.will) will_is_due(session);
    hand_over(session);
    for (auto& [filter, subscription] : session.subscriptions) {
        remove_subscription(filter, subscription);
    }
    state_bytes_ -= session_cost(session.client_id, session.username);
    counters_.queued -= session.queue.size();
    counters_.queued_bytes -= session.queued_bytes;
    counters_.inflight -= session.window.size();
    if (session.persistent) {
        put({.kind = StoreKind::kSessionEnd, .session_id = session.id});
        unstored_ends_[session.client_id] = pending_.store_batch();
        last_unstored_end_ = pending_.store_batch();
        forget_deliveries(session);
    }
    sessions_by_id_.erase(session.id);
    sessions_.erase(sessions_.find(session.client_id));
}

// Until this batch is stored, a session of the client that ended would be back after a crash. 0:
// no.
uint64_t Broker::State::unstored_end_of(ByteView client_id) {
    if (last_unstored_end_ <= pending_.stored_batch()) unstored_ends_.clear();
    auto found = unstored_ends_.find(client_id);
    if (found == unstored_ends_.end() || found->second <= pending_.stored_batch()) return 0;
    return found->second;
}

// kSessionEnd says it of the deliveries; what they were of may have no other.
void Broker::State::forget_deliveries(Session& session) {
    for (size_t i = 0; i < session.window.publish_count(); ++i) {
        let_go(*session.window.publish(i).message);
    }
    for (size_t i = 0; i < session.window.release_count(); ++i) {
        if (session.window.release(i).message) let_go(*session.window.release(i).message);
    }
    for (size_t i = 0; i < session.queue.size(); ++i) {
        if (session.queue[i].qos != Qos::k0) let_go(*session.queue[i].message);
    }
}

// Its state stays for the next connection: subscriptions, QoS 1 and 2, but not QoS 0.
void Broker::State::go_offline(Session& session) {
    session.disconnected_at = now_.wall;
    session.expires = session.expiry_interval == Session::kNeverExpires
                          ? base::kNever
                          : now_.mono + std::chrono::seconds(session.expiry_interval);
    if (session.queued_qos0 > 0) {
        session.queue.remove_if([&](const Delivery& delivery) {
            if (delivery.qos != Qos::k0) return false;
            size_t bytes = delivery.message->bytes();
            session.queued_bytes -= bytes;
            --counters_.queued;
            counters_.queued_bytes -= bytes;
            return true;
        });
        session.queued_qos0 = 0;
    }
    for (size_t i = 0; i < session.window.publish_count(); ++i) {
        Delivery& delivery = session.window.publish(i);
        if (!delivery.may_be_sent || delivery.sent_is_stored) continue;
        delivery.sent_is_stored = true;
        put_delivery(session, delivery, DeliveryState::kQueued);
    }
    session.window.connection_lost();
    for (auto& [packet_id, received] : session.received) {
        received.owed = false;
        received.counted = false;
    }
    save_session(session);
    arm(session);
}

base::MonoTime Broker::State::due(const Session& session) {
    base::MonoTime at = session.next_expired;
    if (session.connection == nullptr) at = std::min({at, session.expires, session.will_due});
    return at;
}

void Broker::State::arm(Session& session) {
    base::MonoTime at = due(session);
    if (at >= session.armed) return;
    session.armed = at;
    session_timers_.add(at, session.id);
}

void Broker::State::session_timer(Session& session) {
    session.armed = base::kNever;
    if (session.connection == nullptr) {
        if (session.expires <= now_.mono) {
            ++counters_.sessions_expired;
            return end_session(session);
        }
        if (session.will_due <= now_.mono) {
            will_is_due(session);
            save_session(session);
        }
    }
    if (session.next_expired <= now_.mono) drop_expired(session);
    arm(session);
}

// Nobody may ever come for what has expired in a queue: it leaves without that.
void Broker::State::drop_expired(Session& session) {
    // A queue of many deadlines is not looked through at each of them.
    constexpr auto kAtMostEvery = std::chrono::seconds(5);
    base::MonoTime next = base::kNever;
    session.queue.remove_if([&](const Delivery& delivery) {
        base::MonoTime expires = delivery.message->expires;
        if (expires > now_.mono) {
            next = std::min(next, expires);
            return false;
        }
        size_t bytes = delivery.message->bytes();
        session.queued_bytes -= bytes;
        if (delivery.qos == Qos::k0) --session.queued_qos0;
        --counters_.queued;
        counters_.queued_bytes -= bytes;
        count_dropped(session, counters_.dropped_expired);
        end_delivery(session, delivery);
        return true;
    });
    session.next_expired =
        next == base::kNever ? base::kNever : std::max(next, now_.mono + kAtMostEvery);
}

}  // namespace pgmqtt::broker
