// Sessions back from the store, at start.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::load(const StoreRecord& record, Now now) {
    begin_input(now);
    last_id_ = std::max({last_id_, record.session_id, record.message_id});
    if (record.kind == StoreKind::kSession) return load_session(record);
    if (record.kind == StoreKind::kMessage) {
        MessagePtr message = make_message(record.message, now_);
        message->charge(message_bytes_);
        message->stored_id = record.message_id;
        loading_[record.message_id] = std::move(message);
        return;
    }
    Session* session = find_session(record.session_id);
    if (session == nullptr) return;
    if (record.kind == StoreKind::kSubscribe) load_subscription(*session, record.subscription);
    if (record.kind == StoreKind::kDelivery) load_delivery(*session, record);
    if (record.kind == StoreKind::kReceived) {
        session->received[record.packet_id] = {.done = true, .stored = true};
    }
}

void Broker::State::load_session(const StoreRecord& record) {
    const StoredSession& stored = record.session;
    if (find_session(stored.client_id) != nullptr) return;
    Session& session = add_session(record.session_id, stored.client_id, stored.username);
    session.persistent = true;
    session.created_at = stored.created_at;
    session.disconnected_at = stored.disconnected_at;
    session.expiry_interval = stored.expiry_interval;
    session.will_delay = stored.will_delay;
    if (!stored.will.topic.empty()) {
        session.will = make_message(stored.will, now_);
        session.will->charge(state_bytes_);
    }
}

void Broker::State::load_subscription(Session& session, const StoredSubscription& stored) {
    mqtt::Subscription wanted{.filter = stored.filter,
                              .qos = stored.qos,
                              .no_local = stored.no_local,
                              .retain_as_published = stored.retain_as_published,
                              .retain_handling = stored.retain_handling};
    put_subscription(session, wanted, stored.identifier);
}

// Into the queue for now; settle_loaded() puts it where it belongs.
void Broker::State::load_delivery(Session& session, const StoreRecord& record) {
    const StoredDelivery& stored = record.delivery;
    auto found = loading_.find(record.message_id);
    MessagePtr message = found != loading_.end() ? found->second : nullptr;
    if (stored.state == DeliveryState::kReceivedByClient) {
        if (message) ++message->stored_deliveries;
        session.window.push_release({.sequence = record.sequence, .message = message});
        ++counters_.inflight;
        return;
    }
    if (!message) return end_delivery(session, record.sequence, nullptr);
    Delivery delivery{.message = std::move(message),
                      .qos = stored.qos,
                      .retain = stored.retain,
                      .may_be_sent = stored.sent,
                      .sent_is_stored = stored.sent,
                      .identifiers = {},
                      .sequence = record.sequence};
    ++delivery.message->stored_deliveries;
    base::ByteReader reader(stored.subscription_identifiers);
    while (reader.remaining() >= sizeof(uint32_t)) delivery.identifiers.push_back(reader.u32());
    push_queue(session, std::move(delivery));
}

void Broker::State::loaded(Now now) {
    begin_input(now);
    for (auto& [id, message] : loading_) {
        if (message->stored_deliveries > 0) continue;
        put({.kind = StoreKind::kMessageEnd, .message_id = id});
        message->stored_id = 0;
    }
    loading_.clear();
    // Also across restarts no identifier is used twice, as long as the clock moves on.
    last_id_ = std::max(last_id_, static_cast<uint64_t>(now.wall.time_since_epoch().count()));
    for (auto& [id, session] : sessions_by_id_) settle_loaded(*session);
    tick(now);
}

void Broker::State::settle_loaded(Session& session) {
    bool was_connected = session.disconnected_at == base::WallTime::max();
    if (was_connected) session.disconnected_at = now_.wall;
    base::MonoTime disconnected = now_.mono + (session.disconnected_at - now_.wall);
    // A wall clock that was set back meanwhile must not prolong what is over.
    disconnected = std::min(disconnected, now_.mono);
    if (session.expiry_interval != Session::kNeverExpires) {
        session.expires = disconnected + std::chrono::seconds(session.expiry_interval);
    }
    if (session.will) session.will_due = disconnected + std::chrono::seconds(session.will_delay);

    std::vector<Delivery> deliveries;
    while (!session.queue.empty()) deliveries.push_back(take_queued(session));
    std::sort(deliveries.begin(), deliveries.end(),
              [](const Delivery& a, const Delivery& b) { return a.sequence < b.sequence; });
    for (Delivery& delivery : deliveries) {
        session.window.skip_sequence(delivery.sequence);
        if (delivery.message->expired(now_.mono) && !delivery.may_be_sent) {
            ++counters_.dropped_expired;
            end_delivery(session, delivery);
            continue;
        }
        // What a connection had sent when the server died nobody wrote down, but for QoS 2 that
        // may expire.
        if (was_connected && !delivery.may_be_sent) {
            delivery.may_be_sent = true;
            delivery.sent_is_stored = true;
            put_delivery(session, delivery, DeliveryState::kQueued);
        }
        bool under_way = delivery.may_be_sent && !session.window.in_use(delivery.sequence);
        if (under_way && session.queue.empty()) {
            session.window.push(std::move(delivery));
            ++counters_.inflight;
        } else {
            push_queue(session, std::move(delivery));
        }
    }
    for (size_t i = 0; i < session.window.release_count(); ++i) {
        session.window.skip_sequence(session.window.release(i).sequence);
    }
    if (was_connected) save_session(session);
    arm(session);
}

}  // namespace pgmqtt::broker
