// PUBACK, PUBREC and PUBREL from a client: sections 3.4, 3.5 and 3.6.
#include "broker/state.h"

namespace pgmqtt::broker {

// Whatever its reason code: the message was received, and is not sent again.
void Broker::State::handle_puback(Connection& c, const mqtt::Puback& puback, Now now) {
    if (!c.session->window.finish(puback.packet_id)) return;
    --counters_.inflight;
    pump(*c.session, now);
}

// Nothing is sent with QoS 2 yet, so whatever these name is of a session that is gone.
void Broker::State::handle_pubrec(Connection& c, const mqtt::Pubrec& pubrec) {
    if (is_error(pubrec.reason)) return;
    mqtt::Pubrel pubrel;
    pubrel.packet_id = pubrec.packet_id;
    pubrel.reason = ReasonCode::kPacketIdentifierNotFound;
    send(c, pubrel);
}

void Broker::State::handle_pubrel(Connection& c, const mqtt::Pubrel& pubrel) {
    mqtt::Pubcomp pubcomp;
    pubcomp.packet_id = pubrel.packet_id;
    pubcomp.reason = ReasonCode::kPacketIdentifierNotFound;
    send(c, pubcomp);
}

}  // namespace pgmqtt::broker
