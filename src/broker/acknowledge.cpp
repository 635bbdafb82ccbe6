// PUBACK, PUBREC and PUBCOMP from a client: how deliveries end, sections 3.4, 3.5 and 3.7.
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

// Whatever its reason code: the message was received, and is not sent again.
void Broker::State::handle_puback(Connection& c, const mqtt::Puback& puback) {
    Session& session = *c.session;
    size_t index = session.window.find_sent(puback.packet_id);
    if (index == InflightWindow::kNone || session.window.publish(index).qos != Qos::k1) return;
    end_delivery(session, session.window.take_sent(index));
    --counters_.inflight;
    pump(session);
}

void Broker::State::handle_pubrec(Connection& c, const mqtt::Pubrec& pubrec) {
    Session& session = *c.session;
    size_t index = session.window.find_sent(pubrec.packet_id);
    if (index == InflightWindow::kNone || session.window.publish(index).qos != Qos::k2) {
        if (is_error(pubrec.reason)) return;
        size_t known = session.window.find_release(pubrec.packet_id);
        if (known == InflightWindow::kNone) {
            return send_pubrel(c, pubrec.packet_id, ReasonCode::kPacketIdentifierNotFound);
        }
        // A repetition; if the PUBREL has not left yet, it will.
        if (!session.window.release(known).is_sent) return;
        return send_pubrel(c, pubrec.packet_id, ReasonCode::kSuccess);
    }
    Delivery delivery = session.window.take_sent(index);
    if (is_error(pubrec.reason)) {  // ends the delivery, section 4.3.3
        end_delivery(session, delivery);
        --counters_.inflight;
        return pump(session);
    }
    Release release{.sequence = delivery.sequence,
                    .stored = delivery.stored,
                    .bytes = delivery.bytes,
                    .expires = delivery.expires,
                    .counted = true};
    if (session.persistent) {
        // The PUBLISH is never sent again from here on, and PUBREL is: not before that is stored.
        put_release(session, release);
        release.batch = pending_.store_batch();
        wake_when_stored(session);
    }
    session.window.push_release(std::move(release));
    flush_releases(session);
}

void Broker::State::handle_pubcomp(Connection& c, const mqtt::Pubcomp& pubcomp) {
    Session& session = *c.session;
    size_t index = session.window.find_release(pubcomp.packet_id);
    if (index == InflightWindow::kNone || !session.window.release(index).is_sent) return;
    Release release = session.window.take_release(index);
    end_delivery(session.id, release.sequence, release.stored);
    --counters_.inflight;
    pump(session);
}

// The PUBRELs that may leave, in the order of their PUBRECs [MQTT-4.6.0-4].
void Broker::State::flush_releases(Session& session) {
    Connection* c = online(session);
    if (c == nullptr) return;
    for (size_t i = 0; i < session.window.release_count(); ++i) {
        Release& release = session.window.release(i);
        if (release.is_sent) continue;
        if (release.batch > pending_.stored_batch()) return;
        release.is_sent = true;
        send_pubrel(*c, InflightWindow::identifier(release.sequence), ReasonCode::kSuccess);
        if (c->phase != Phase::kConnected) return;  // it takes no packet of four bytes
    }
}

void Broker::State::send_pubrel(Connection& c, uint16_t packet_id, ReasonCode reason) {
    mqtt::Pubrel pubrel;
    pubrel.packet_id = packet_id;
    pubrel.reason = reason;
    send(c, pubrel);
}

}  // namespace pgmqtt::broker
