// PUBLISH from a client, section 3.3, and the PUBACK it is owed, section 3.4.
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

void Broker::State::handle_publish(Connection& c, mqtt::Publish& publish, Now now) {
    ++counters_.publishes_in;
    if (publish.qos == Qos::k2) {  // [MQTT-3.2.2-11]
        return protocol_error(c, ReasonCode::kQosNotSupported, "PUBLISH with QoS 2");
    }
    bool is_v5 = c.version == Version::k5;
    if (publish.qos == Qos::k1 && is_v5 && c.owed.size() >= c.receive_quota) {
        return protocol_error(c, ReasonCode::kReceiveMaximumExceeded,
                              "more unacknowledged PUBLISHes than Receive Maximum");
    }
    if (is_v5 && !resolve_alias(c, publish)) return;
    if (mqtt::begins_with_dollar(publish.topic)) {
        // Not the client's to use, section 4.7.2; it is told and stays.
        if (publish.qos == Qos::k1) {
            acknowledge(c, publish.packet_id, ReasonCode::kNotAuthorized);
        } else {
            ++counters_.publishes_refused;
        }
        return;
    }

    Qos qos = publish.qos;  // route() uses the packet as scratch
    uint16_t packet_id = publish.packet_id;
    Origin origin{.session = c.session,
                  .client_id = c.session->client_id,
                  .username = c.session->username,
                  .refusable = qos == Qos::k1 && is_v5,
                  .has_properties = is_v5,
                  .encoded_properties = {},
                  .received_at = now.wall};
    Routed routed = route(publish, origin, now);

    if (routed.pending != Pending::kNone && pending_.bytes() > config_.max_pending_bytes) {
        pause(c, kPausedForPending);
    }
    if (pressure() == Pressure::kFull) pause(c, kPausedForMemory);
    if (qos == Qos::k0) return;
    if (routed.must_wait) {
        owe_puback(c, packet_id, routed.pending);
    } else {
        acknowledge(c, packet_id, routed.reason);
    }
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

void Broker::State::acknowledge(Connection& c, uint16_t packet_id, ReasonCode reason) {
    OwedPuback puback{packet_id, true, reason, {}};
    if (c.owed.empty()) return send_puback(c, puback);
    c.owed.push_back(std::move(puback));  // behind those that wait [MQTT-4.6.0-2]
    if (c.version != Version::k5 && c.owed.size() >= c.receive_quota) {
        pause(c, kPausedForAcknowledgements);
    }
}

void Broker::State::owe_puback(Connection& c, uint16_t packet_id, Pending::PublishId pending) {
    uint64_t number = c.first_owed + c.owed.size();
    c.owed.push_back({packet_id, false, ReasonCode::kSuccess, {}});
    pending_.set_owner(pending, {PendingOwner::Kind::kPuback, c.id, number});
    // 5.0 clients know their quota; the others are just not read for a while.
    if (c.version != Version::k5 && c.owed.size() >= c.receive_quota) {
        pause(c, kPausedForAcknowledgements);
    }
}

void Broker::State::flush_owed(Connection& c) {
    while (!c.owed.empty() && c.owed.front().ready) {
        send_puback(c, c.owed.front());
        c.owed.pop_front();
        ++c.first_owed;
    }
    if (c.owed.size() < c.receive_quota) resume(c, kPausedForAcknowledgements);
}

void Broker::State::send_puback(Connection& c, const OwedPuback& puback) {
    if (is_error(puback.reason)) ++counters_.publishes_refused;
    if (!puback.reason_string.empty() && c.version == Version::k5 && c.problem_information) {
        mqtt::Puback packet;
        packet.packet_id = puback.packet_id;
        packet.reason = puback.reason;
        packet.properties.reason_string = puback.reason_string;
        bytes_.clear();
        mqtt::encode(packet, c.version, bytes_);
        if (bytes_.size() <= c.maximum_packet_size) {  // else without [MQTT-3.4.2-2]
            c.outbox.tail().append(bytes_);
            return sent(c, bytes_.size());
        }
    }
    // By hand, because every QoS 1 message pays for it: type, remaining length, identifier, and in
    // 5.0 the reason if it is not success.
    bool has_reason = c.version == Version::k5 && puback.reason != ReasonCode::kSuccess;
    char packet[] = {static_cast<char>(static_cast<uint8_t>(mqtt::PacketType::kPuback) << 4),
                     static_cast<char>(has_reason ? 3 : 2),
                     static_cast<char>(puback.packet_id >> 8),
                     static_cast<char>(puback.packet_id & 0xFF), static_cast<char>(puback.reason)};
    size_t size = has_reason ? 5 : 4;
    c.outbox.tail().append(packet, size);
    sent(c, size);
}

}  // namespace pgmqtt::broker
