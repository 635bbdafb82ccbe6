// Records of persistent sessions, and what waits until they are stored: the invariant.
#include <optional>
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

void Broker::State::save_session(const Session& session) {
    if (!session.persistent) return;
    StoreRecord record{.kind = StoreKind::kSession, .session_id = session.id};
    record.session = {.client_id = session.client_id,
                      .username = session.username,
                      .created_at = session.created_at,
                      .disconnected_at = session.disconnected_at,
                      .expiry_interval = session.expiry_interval,
                      .will = {},
                      .will_delay = session.will_delay};
    if (session.will) record.session.will = session.will->view();
    put(record);
}

void Broker::State::save_subscription(const Session& session, const mqtt::Subscription& wanted,
                                      Qos granted, uint32_t identifier) {
    StoreRecord record{.kind = StoreKind::kSubscribe, .session_id = session.id};
    record.subscription = {.filter = wanted.filter,
                           .qos = granted,
                           .no_local = wanted.no_local,
                           .retain_as_published = wanted.retain_as_published,
                           .retain_handling = wanted.retain_handling,
                           .identifier = identifier};
    put(record);
}

// Gives the delivery its place in the sequence. `routed`: of the current route, whose publisher
// waits for it; else the message is stored for this delivery alone.
void Broker::State::save_delivery(Session& session, Delivery& delivery, Routed* routed) {
    StoredAs stored = routed != nullptr ? route_.stored : StoredAs{};
    if (stored.id == 0) {
        MessageView message = routed != nullptr ? route_view() : delivery.message->view();
        stored = {++last_id_, durability_of(message.topic)};
        put({.kind = StoreKind::kMessage,
             .message = message,
             .message_id = stored.id,
             .durability = stored.durability});
        if (routed != nullptr) route_.stored = stored;
    }
    delivery.stored = stored;
    delivery.sequence = session.window.take_sequence();
    // QoS 1 leaves at once: after a crash it comes again from the publisher, who knows of no
    // acknowledgement, and may then be a second time at the receiver, who allows that. What QoS 2
    // promises holds across a crash only if it is stored first.
    if (delivery.qos == Qos::k2) {
        delivery.batch = pending_.store_batch();
        wake_when_stored(session);
    }
    if (routed == nullptr) return put_delivery(session, delivery, DeliveryState::kQueued);
    Pending::PublishId publish = pending_of(*routed);
    delivery.publish = pending_.add_delivery(publish);
    if (routed->stores_deliveries) return put_delivery(session, delivery, DeliveryState::kQueued);
    // All records of one publish are in one batch: one of them is enough to wait for.
    routed->stores_deliveries = true;
    routed->must_wait = true;
    put_delivery(session, delivery, DeliveryState::kQueued, publish);
}

void Broker::State::put_delivery(const Session& session, const Delivery& delivery,
                                 DeliveryState state, Pending::PublishId waiting) {
    std::string identifiers;
    for (uint32_t identifier : delivery.identifiers) base::put_u32(identifiers, identifier);
    StoreRecord record{.kind = StoreKind::kDelivery,
                       .session_id = session.id,
                       .message_id = delivery.stored.id,
                       .durability = delivery.stored.durability,
                       .sequence = delivery.sequence};
    record.delivery = {.state = state,
                       .sent = delivery.may_be_sent,
                       .qos = delivery.qos,
                       .retain = delivery.retain,
                       .subscription_identifiers = identifiers,
                       .bytes = delivery.bytes,
                       .expires_at = wall_time(delivery.expires)};
    pending_.add_store(waiting, record, turn_.store, Pending::Part::kDeliveries);
}

void Broker::State::put_release(const Session& session, const Release& release) {
    Delivery delivery{.stored = release.stored,
                      .qos = Qos::k2,
                      .may_be_sent = true,
                      .sequence = release.sequence,
                      .bytes = release.bytes,
                      .expires = release.expires};
    put_delivery(session, delivery, DeliveryState::kReceivedByClient);
}

void Broker::State::end_delivery(const Session& session, const Delivery& delivery) {
    if (delivery.publish.id != Pending::kNone) delivered_.push_back(delivery.publish);
    end_delivery(session.id, delivery.sequence, delivery.stored);
}

void Broker::State::end_delivery(uint64_t session, uint64_t sequence, const StoredAs& stored) {
    if (stored.id == 0) return;
    put({.kind = StoreKind::kDeliveryEnd,
         .session_id = session,
         .message_id = stored.id,
         .durability = stored.durability,
         .sequence = sequence});
}

Durability Broker::State::durability_of(ByteView topic) const {
    std::optional<Durability> found;
    for (const DurabilityRule& rule : durability_rules_) {
        if (found && *found <= rule.durability) continue;
        if (mqtt::topic_matches(rule.filter, topic)) found = rule.durability;
    }
    return found.value_or(config_.durability);
}

base::WallTime Broker::State::wall_time(base::MonoTime at) const {
    if (at == base::kNever) return base::WallTime::max();
    return now_.wall + std::chrono::duration_cast<std::chrono::microseconds>(at - now_.mono);
}

// Call behind the records to wait for: they are in the batch of this turn.
void Broker::State::wait_for_store(StoreWait wait) {
    wait.batch = pending_.store_batch();
    store_waits_.push_back(std::move(wait));
}

void Broker::State::wake_when_stored(Session& session) {
    if (session.woken_by == pending_.store_batch()) return;
    session.woken_by = pending_.store_batch();
    wait_for_store({.kind = StoreWait::Kind::kSession, .session = session.id});
}

void Broker::State::go_on_stored() {
    while (!store_waits_.empty() && store_waits_.front().batch <= pending_.stored_batch()) {
        StoreWait wait = std::move(store_waits_.front());
        store_waits_.pop_front();
        go_on(wait);
    }
}

// Whom it was for may be gone.
void Broker::State::go_on(StoreWait& wait) {
    if (wait.kind == StoreWait::Kind::kConnack || wait.kind == StoreWait::Kind::kPacket) {
        Connection* c = find(wait.connection);
        if (c == nullptr) return;
        if (wait.kind == StoreWait::Kind::kConnack && c->phase == Phase::kStoring) return open(*c);
        if (wait.kind == StoreWait::Kind::kPacket && c->phase == Phase::kConnected) {
            c->outbox.tail().append(wait.packet);
            sent(*c, wait.packet.size());
            pump(*c->session);
        }
        return;
    }
    Session* session = find_session(wait.session);
    if (session == nullptr) return;
    switch (wait.kind) {
        case StoreWait::Kind::kPubrec:
            return pubrec_ready(*session, wait.packet_id, ReasonCode::kSuccess, {});
        case StoreWait::Kind::kPubcomp:
            return release(*session, wait.packet_id);
        default:
            flush_releases(*session);
            session = find_session(wait.session);
            if (session != nullptr) pump(*session);
    }
}

}  // namespace pgmqtt::broker
