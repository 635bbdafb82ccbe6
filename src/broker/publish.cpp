// PUBLISH from a client, section 3.3, and the PUBACK it is owed, section 3.4.
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

void Broker::State::handle_publish(Connection& c, mqtt::Publish& publish, Now now) {
    ++counters_.publishes_in;
    ++c.traffic.messages_in;
    counters_.publish_bytes_in += publish.payload.size();
    bool is_v5 = c.version == Version::k5;
    if (!within_quota(c, publish)) {
        return protocol_error(c, ReasonCode::kReceiveMaximumExceeded,
                              "more unacknowledged PUBLISHes than Receive Maximum");
    }
    if (is_v5 && !resolve_alias(c, publish)) return;
    if (publish.qos != Qos::k0 && handle_repetition(c, publish)) return;
    if (mqtt::begins_with_dollar(publish.topic)) {
        // Not the client's to use, section 4.7.2; it is told and stays.
        return refuse_publish(c, publish, ReasonCode::kNotAuthorized);
    }

    Qos qos = publish.qos;  // route() uses the packet as scratch
    uint16_t packet_id = publish.packet_id;
    Origin origin{.session = c.session,
                  .client_id = c.session->client_id,
                  .username = c.session->username,
                  .refusable = qos != Qos::k0 && is_v5,
                  .has_properties = is_v5,
                  .encoded_properties = {},
                  .received_at = now.wall,
                  .input = input_,
                  .packet_id = qos == Qos::k0 ? uint16_t{0} : packet_id,
                  .dup = publish.dup};
    Routed routed = route(publish, origin, now);

    if (routed.pending != Pending::kNone && pending_.bytes() > config_.max_pending_bytes) {
        pause(c, kPausedForPending);
    }
    if (pressure() == Pressure::kFull) pause(c, kPausedForMemory);
    if (qos == Qos::k0) return;
    if (is_error(routed.reason)) {  // nobody got it: it can come again
        acknowledge(c,
                    {.type = qos == Qos::k1 ? mqtt::PacketType::kPuback : mqtt::PacketType::kPubrec,
                     .packet_id = packet_id,
                     .reason = routed.reason});
        return;
    }
    if (qos == Qos::k2) return owe_pubrec(c, packet_id, routed);
    OwedAck ack{.packet_id = packet_id, .reason = routed.reason};
    if (!routed.must_wait) return acknowledge(c, std::move(ack));
    PendingOwner owner{.kind = PendingOwner::Kind::kPuback,
                       .connection = c.id,
                       .number = c.first_owed + c.owed.size()};
    pending_.set_owner(routed.pending, owner);
    ++c.receiving;
    owe(c, std::move(ack));
}

// Whether the client keeps to our Receive Maximum [MQTT-3.3.4-7]. A repetition of one that counts
// already does not count again.
bool Broker::State::within_quota(Connection& c, const mqtt::Publish& publish) {
    if (publish.qos == Qos::k0 || c.version != Version::k5 || c.receiving < c.receive_quota) {
        return true;
    }
    auto known = c.session->received.find(publish.packet_id);
    return known != c.session->received.end() && known->second.counted;
}

// 3.x knows no refusal: it is acknowledged and dropped.
void Broker::State::refuse_publish(Connection& c, const mqtt::Publish& publish, ReasonCode reason) {
    if (publish.qos == Qos::k0) {
        ++counters_.publishes_refused;
        return;
    }
    bool is_qos1 = publish.qos == Qos::k1;
    acknowledge(c, {.type = is_qos1 ? mqtt::PacketType::kPuback : mqtt::PacketType::kPubrec,
                    .packet_id = publish.packet_id,
                    .reason = reason});
}

// False when the connection is closing for it.
bool Broker::State::resolve_alias(Connection& c, mqtt::Publish& publish) {
    if (!publish.properties.topic_alias) return true;
    size_t alias = *publish.properties.topic_alias;
    // An alias means nothing to the receivers.
    publish.properties.topic_alias.reset();
    if (alias == 0 || alias > c.alias_maximum) {  // [MQTT-3.3.2-8] [MQTT-3.3.2-9]
        protocol_error(c, ReasonCode::kTopicAliasInvalid, "topic alias is above the maximum");
        return false;
    }
    if (c.aliases.size() <= alias) c.aliases.resize(alias + 1);
    if (!publish.topic.empty()) {
        c.aliases[alias] = publish.topic;
    } else if (c.aliases[alias].empty()) {
        protocol_error(c, ReasonCode::kTopicAliasInvalid, "topic alias was never set");
        return false;
    } else {
        publish.topic = c.aliases[alias];
    }
    return true;
}

// What can be said now, behind what waits.
void Broker::State::acknowledge(Connection& c, OwedAck ack) {
    ack.ready = true;
    if (c.owed.empty()) return send_ack(c, ack);
    if (ack.type == mqtt::PacketType::kPuback) ++c.receiving;
    owe(c, std::move(ack));
}

void Broker::State::owe(Connection& c, OwedAck ack) {
    c.owed.push_back(std::move(ack));
    // 5.0 clients know their quota; the others are just not read for a while. What they have
    // acknowledged but not released does not count: its PUBREL may be behind what is not read.
    if (c.version != Version::k5 && c.owed.size() >= c.receive_quota) {
        pause(c, kPausedForAcknowledgements);
    }
}

void Broker::State::flush_owed(Connection& c) {
    while (!c.owed.empty() && c.owed.front().ready) {
        if (c.owed.front().type == mqtt::PacketType::kPuback) --c.receiving;
        send_ack(c, c.owed.front());
        c.owed.pop_front();
        ++c.first_owed;
    }
    if (c.owed.size() < c.receive_quota) resume(c, kPausedForAcknowledgements);
}

// PUBACK or PUBREC: their bodies are the same.
void Broker::State::send_ack(Connection& c, const OwedAck& ack) {
    if (is_error(ack.reason)) ++counters_.publishes_refused;
    auto first_byte = static_cast<char>(static_cast<uint8_t>(ack.type) << 4);
    if (!ack.reason_string.empty() && c.version == Version::k5 && c.problem_information) {
        mqtt::Puback packet;
        packet.packet_id = ack.packet_id;
        packet.reason = ack.reason;
        packet.properties.reason_string = ack.reason_string;
        bytes_.clear();
        mqtt::encode(packet, c.version, bytes_);
        bytes_[0] = first_byte;
        if (bytes_.size() <= c.maximum_packet_size) {  // else without [MQTT-3.4.2-2]
            c.outbox.tail().append(bytes_);
            return sent(c, bytes_.size());
        }
    }
    // By hand, because every QoS 1 message pays for it: type, remaining length, identifier, and in
    // 5.0 the reason if it is not success.
    bool has_reason = c.version == Version::k5 && ack.reason != ReasonCode::kSuccess;
    char packet[] = {first_byte, static_cast<char>(has_reason ? 3 : 2),
                     static_cast<char>(ack.packet_id >> 8), static_cast<char>(ack.packet_id & 0xFF),
                     static_cast<char>(ack.reason)};
    size_t size = has_reason ? 5 : 4;
    c.outbox.tail().append(packet, size);
    sent(c, size);
}

}  // namespace pgmqtt::broker
