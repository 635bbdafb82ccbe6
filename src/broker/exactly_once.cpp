// QoS 2 from a client: PUBLISH, PUBREC, PUBREL, PUBCOMP, section 4.3.3.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

// True when the PUBLISH is one that came before, or contradicts one: it goes no further.
bool Broker::State::handle_repetition(Connection& c, const mqtt::Publish& publish) {
    auto found = c.session->received.find(publish.packet_id);
    if (found == c.session->received.end()) return false;
    if (publish.qos != Qos::k2) {
        acknowledge(c, {.type = mqtt::PacketType::kPuback,
                        .packet_id = publish.packet_id,
                        .reason = ReasonCode::kPacketIdentifierInUse});
        return true;
    }
    ReceivedPublish& received = found->second;
    if (!received.counted) {
        received.counted = true;
        ++c.receiving;
    }
    // Also one that a connection before this one brought: acknowledged when it is done.
    if (received.owed) return true;
    OwedAck ack{.type = mqtt::PacketType::kPubrec, .packet_id = publish.packet_id};
    if (received.done) {
        acknowledge(c, std::move(ack));
    } else {
        received.owed = true;
        owe(c, std::move(ack));
    }
    return true;
}

void Broker::State::owe_pubrec(Connection& c, uint16_t packet_id, const Routed& routed) {
    Session& session = *c.session;
    ReceivedPublish& received = session.received[packet_id];
    received.counted = true;
    received.owed = true;
    ++c.receiving;
    owe(c, {.type = mqtt::PacketType::kPubrec, .packet_id = packet_id, .reason = routed.reason});
    // With a sink, whether it is received is not known before the sink has it.
    // What the store has to have before the PUBREC is this, whoever has the message already.
    if (!routed.waits_for_sink) record_received(session, packet_id, received, routed.pending);
    if (routed.must_wait) {
        pending_.set_owner(
            routed.pending,
            {.kind = PendingOwner::Kind::kPubrec, .number = session.id, .packet_id = packet_id});
    } else if (received.stored_id != 0) {
        wait_for_store(
            {.kind = StoreWait::Kind::kPubrec, .session = session.id, .packet_id = packet_id});
    } else {
        pubrec_ready(session, packet_id, routed.reason, {});
    }
}

void Broker::State::record_received(Session& session, uint16_t packet_id, ReceivedPublish& received,
                                    Pending::PublishId waiting) {
    if (!session.persistent || received.stored_id != 0) return;
    received.stored_id = ++last_id_;
    put_received(session, packet_id, received.stored_id, StoreKind::kReceived, waiting);
}

// In the logged log, whatever becomes of messages: an identifier that is forgotten is a message
// that comes twice.
void Broker::State::put_received(const Session& session, uint16_t packet_id, uint64_t stored_id,
                                 StoreKind kind, Pending::PublishId waiting) {
    StoreRecord record{.kind = kind,
                       .session_id = session.id,
                       .message_id = stored_id,
                       .durability = std::min(config_.durability, Durability::kAsync),
                       .packet_id = packet_id};
    pending_.add_store(waiting, record, turn_.store);
}

void Broker::State::finish_pubrec(const FinishedPublish& finished) {
    Session* session = find_session(finished.owner.number);
    if (session == nullptr) return;
    uint16_t packet_id = finished.owner.packet_id;
    auto found = session->received.find(packet_id);
    if (found == session->received.end() || found->second.done) return;
    if (!is_error(finished.reason) && session->persistent && found->second.stored_id == 0) {
        record_received(*session, packet_id, found->second);
        return wait_for_store(
            {.kind = StoreWait::Kind::kPubrec, .session = session->id, .packet_id = packet_id});
    }
    pubrec_ready(*session, packet_id, finished.reason, finished.reason_string);
}

// The client may be disconnected: then it will ask again.
void Broker::State::pubrec_ready(Session& session, uint16_t packet_id, ReasonCode reason,
                                 const std::string& reason_string) {
    auto found = session.received.find(packet_id);
    if (found == session.received.end() || found->second.done) return;
    ReceivedPublish received = found->second;
    found->second.done = true;
    found->second.owed = false;
    Connection* c = online(session);
    // An error ends it [MQTT-4.3.3-9]; 3.x has no errors, and goes on to its PUBREL.
    if (is_error(reason) && (c == nullptr || c->version == Version::k5)) {
        if (received.stored_id != 0) {
            put_received(session, packet_id, received.stored_id, StoreKind::kReleased);
        }
        if (received.counted && c != nullptr) --c->receiving;
        session.received.erase(found);
    }
    if (c == nullptr || !received.owed) return;
    for (size_t i = 0; i < c->owed.size(); ++i) {
        OwedAck& ack = c->owed[i];
        if (ack.ready || ack.packet_id != packet_id || ack.type != mqtt::PacketType::kPubrec) {
            continue;
        }
        ack.ready = true;
        if (reason != ReasonCode::kSuccess) ack.reason = reason;
        ack.reason_string = reason_string;
        break;
    }
    flush_owed(*c);
}

void Broker::State::handle_pubrel(Connection& c, const mqtt::Pubrel& pubrel) {
    Session& session = *c.session;
    auto found = session.received.find(pubrel.packet_id);
    if (found == session.received.end()) {
        mqtt::Pubcomp pubcomp;
        pubcomp.packet_id = pubrel.packet_id;
        pubcomp.reason = ReasonCode::kPacketIdentifierNotFound;
        return send(c, pubcomp);
    }
    ReceivedPublish& received = found->second;
    if (received.releasing) return;  // its PUBCOMP is on its way
    // One that was not acknowledged yet is not the client's to release: it must not be forgotten.
    if (!received.done) return;
    if (received.stored_id == 0) return release(session, pubrel.packet_id);
    received.releasing = true;
    put_received(session, pubrel.packet_id, received.stored_id, StoreKind::kReleased);
    wait_for_store(
        {.kind = StoreWait::Kind::kPubcomp, .session = session.id, .packet_id = pubrel.packet_id});
}

void Broker::State::release(Session& session, uint16_t packet_id) {
    auto found = session.received.find(packet_id);
    if (found == session.received.end()) return;
    bool counted = found->second.counted;
    session.received.erase(found);
    Connection* c = online(session);
    if (c == nullptr) return;  // it will say PUBREL again
    if (counted) --c->receiving;
    mqtt::Pubcomp pubcomp;
    pubcomp.packet_id = packet_id;
    send(*c, pubcomp);
}

}  // namespace pgmqtt::broker
