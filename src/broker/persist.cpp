// Records of persistent sessions, and what waits until they are stored: the invariant.
#include <utility>

#include "broker/state.h"

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

// Gives the delivery its place in the sequence. `routed`: of the publish that waits for it.
void Broker::State::save_delivery(Session& session, Delivery& delivery, Routed* routed) {
    Message& message = *delivery.message;
    if (message.stored_deliveries++ == 0) {
        message.stored_id = ++last_id_;
        put({.kind = StoreKind::kMessage,
             .message = message.view(),
             .message_id = message.stored_id});
    }
    delivery.sequence = session.window.take_sequence();
    delivery.batch = pending_.store_batch();
    if (routed == nullptr || routed->stores_deliveries) {
        put_delivery(session, delivery, DeliveryState::kQueued);
    } else {
        // All records of one publish are in one batch: one of them is enough to wait for.
        routed->stores_deliveries = true;
        routed->must_wait = true;
        put_delivery(session, delivery, DeliveryState::kQueued, pending_of(*routed));
    }
    wake_when_stored(session);
}

void Broker::State::put_delivery(const Session& session, const Delivery& delivery,
                                 DeliveryState state, Pending::PublishId waiting) {
    std::string identifiers;
    for (uint32_t identifier : delivery.identifiers) base::put_u32(identifiers, identifier);
    StoreRecord record{.kind = StoreKind::kDelivery,
                       .session_id = session.id,
                       .message_id = delivery.message->stored_id,
                       .sequence = delivery.sequence};
    record.delivery = {.state = state,
                       .sent = delivery.may_be_sent,
                       .qos = delivery.qos,
                       .retain = delivery.retain,
                       .subscription_identifiers = identifiers};
    pending_.add_store(waiting, record, turn_.store);
}

void Broker::State::end_delivery(const Session& session, const Delivery& delivery) {
    if (!session.persistent || delivery.qos == Qos::k0) return;
    end_delivery(session, delivery.sequence, delivery.message.get());
}

void Broker::State::end_delivery(const Session& session, uint64_t sequence, Message* message) {
    if (!session.persistent) return;
    put({.kind = StoreKind::kDeliveryEnd, .session_id = session.id, .sequence = sequence});
    if (message != nullptr) let_go(*message);
}

// One delivery less needs the message.
void Broker::State::let_go(Message& message) {
    if (--message.stored_deliveries > 0) return;
    put({.kind = StoreKind::kMessageEnd, .message_id = message.stored_id});
    message.stored_id = 0;
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
