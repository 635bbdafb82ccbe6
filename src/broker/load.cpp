// Sessions back from the store, at start.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::load(const StoreRecord& record, Now now) {
    begin_input(now);
    last_id_ = std::max({last_id_, record.session_id, record.message_id});
    if (record.kind == StoreKind::kSession) return load_session(record);
    Session* session = find_session(record.session_id);
    if (session == nullptr) {
        // Of a member of a group whose session was not stored itself.
        if (record.kind == StoreKind::kDelivery) {
            end_delivery(record.session_id, record.sequence,
                         {record.message_id, record.durability});
        }
        return;
    }
    if (record.kind == StoreKind::kSubscribe) load_subscription(*session, record.subscription);
    if (record.kind == StoreKind::kDelivery) load_delivery(*session, record);
    if (record.kind == StoreKind::kReceived) {
        session->received[record.packet_id] = {.done = true, .stored_id = record.message_id};
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
    Delivery delivery{.stored = {record.message_id, record.durability},
                      .qos = stored.qos,
                      .retain = stored.retain,
                      .may_be_sent = stored.sent,
                      .sent_is_stored = stored.sent,
                      .published_qos = stored.qos,
                      .published_retain = stored.retain,
                      .identifiers = {},
                      .sequence = record.sequence,
                      .bytes = stored.bytes,
                      .expires = monotonic_expiry(stored.expires_at, now_)};
    base::ByteReader reader(stored.subscription_identifiers);
    while (reader.remaining() >= sizeof(uint32_t)) delivery.identifiers.push_back(reader.u32());
    StoredEntry entry = far_entry(session, delivery);
    entry.released = stored.state == DeliveryState::kReceivedByClient;
    session.far.push_back(entry, base::kNever);
}

void Broker::State::loaded(Now now) {
    begin_input(now);
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

    settle_loaded_queue(session, was_connected);
    if (was_connected) save_session(session);
    arm(session);
}

void Broker::State::keep_far(Session& session, const StoredEntry& entry, base::MonoTime expires) {
    session.far.push_back(entry, expires);
    session.far_bytes += entry.bytes;
    ++far_entries_;
    count_queued(session, entry.bytes, expires);
}

// Puts the deliveries, which came in any order, where they belong.
void Broker::State::settle_loaded_queue(Session& session, bool was_connected) {
    // What was sent when the server died nobody wrote down, but for QoS 2 that may expire. Of a
    // queue as long as this not all was; to be told so by the next start is enough for its front.
    constexpr size_t kMostWritten = 1 << 17;
    std::vector<StoredEntry> loaded = session.far.take_all();
    far_entries_ -= loaded.size();
    session.far_bytes = 0;
    auto by_sequence = [](const StoredEntry& a, const StoredEntry& b) {
        return a.sequence < b.sequence;
    };
    if (!std::is_sorted(loaded.begin(), loaded.end(), by_sequence)) {
        std::sort(loaded.begin(), loaded.end(), by_sequence);
    }
    size_t most_in_window = std::max<size_t>(config_.max_inflight, 1);
    bool in_window = true;
    for (size_t i = 0; i < loaded.size(); ++i) {
        const StoredEntry& entry = loaded[i];
        session.window.skip_sequence(entry.sequence);
        base::MonoTime expires = far_clock_.get(entry.expires);
        bool sent = entry.may_be_sent || was_connected;
        if (!sent && !entry.released && expires > now_.mono) {  // nearly all
            in_window = false;
            keep_far(session, entry, expires);
            continue;
        }
        Delivery delivery = delivery_of(session, entry);
        if (entry.has_identifiers) session.far_identifiers.erase(entry.sequence);
        if (entry.released) {
            session.window.push_release({.sequence = delivery.sequence,
                                         .stored = delivery.stored,
                                         .bytes = delivery.bytes,
                                         .expires = delivery.expires});
            ++counters_.inflight;
            continue;
        }
        if (delivery.expired(now_.mono) && !delivery.may_be_sent) {
            count_dropped(session, counters_.dropped_expired);
            end_delivery(session, delivery);
            continue;
        }
        if (was_connected && !delivery.may_be_sent) {
            delivery.may_be_sent = true;
            if (i < kMostWritten) {
                delivery.sent_is_stored = true;
                put_delivery(session, delivery, DeliveryState::kQueued);
            }
        }
        in_window = in_window && delivery.may_be_sent &&
                    session.window.publish_count() < most_in_window &&
                    !session.window.in_use(delivery.sequence);
        if (in_window) {
            session.window.push(std::move(delivery));
            session.incomplete = true;
            ++counters_.inflight;
        } else {
            push_far(session, delivery);
        }
    }
}

}  // namespace pgmqtt::broker
