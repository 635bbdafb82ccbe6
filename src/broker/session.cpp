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
    forget_subscriptions(session);
    state_bytes_ -= session_cost(session.client_id, session.username);
    counters_.queued -= session.queued();
    counters_.queued_bytes -= session.queued_bytes;
    counters_.inflight -= session.window.size();
    far_entries_ -= session.far.size();
    end_deliveries(session);
    if (session.persistent) {
        put({.kind = StoreKind::kSessionEnd, .session_id = session.id});
        unstored_ends_[session.client_id] = pending_.store_batch();
        last_unstored_end_ = pending_.store_batch();
    }
    if (auto waiting = successors_.find(session.id); waiting != successors_.end()) {
        for (Successor& successor : waiting->second) to_admit_.push_back(std::move(successor));
        successors_.erase(waiting);
    }
    command_saw_end(session);
    session_timers_.remove(session);
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

// One by one: the store counts what is left in each part of its log.
void Broker::State::end_deliveries(Session& session) {
    for (size_t i = 0; i < session.window.publish_count(); ++i) {
        end_delivery(session, session.window.publish(i));
    }
    for (size_t i = 0; i < session.window.release_count(); ++i) {
        const Release& release = session.window.release(i);
        end_delivery(session.id, release.sequence, release.stored);
    }
    session.queue.for_each([&](const Delivery& delivery) { end_delivery(session, delivery); });
    session.far.for_each([&](const StoredEntry& entry) {
        end_delivery(session.id, entry.sequence, {entry.message_id, entry.durability});
    });
    for (const auto& [packet_id, received] : session.received) {
        if (received.stored_id == 0 || received.releasing) continue;
        put_received(session, packet_id, received.stored_id, StoreKind::kReleased);
    }
}

// Its state stays for the next connection: subscriptions, QoS 1 and 2, but not QoS 0.
void Broker::State::go_offline(Session& session) {
    session.disconnected_at = now_.wall;
    session.expires = session.expiry_interval == Session::kNeverExpires
                          ? base::kNever
                          : now_.mono + std::chrono::seconds(session.expiry_interval);
    put_away(session);
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

}  // namespace pgmqtt::broker
