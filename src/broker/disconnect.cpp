// DISCONNECT, section 3.14, and every other way in which connections and sessions end.
#include <algorithm>
#include <utility>

#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::handle_disconnect(Connection& c, const mqtt::Disconnect& disconnect) {
    if (auto expiry = disconnect.properties.session_expiry_interval) {
        if (*expiry > 0 && c.session->expiry_interval == 0) {  // section 3.14.2.2.2
            return protocol_error(c, ReasonCode::kProtocolError,
                                  "session expiry interval raised from 0");
        }
        c.session->expiry_interval = std::min(*expiry, config_.max_session_expiry);
    }
    ++counters_.disconnects;
    // Only a normal disconnection takes the will back [MQTT-3.14.4-3].
    leave(c, disconnect.reason != ReasonCode::kSuccess);
    close(c, "");
}

void Broker::State::protocol_error(Connection& c, ReasonCode reason, const char* detail) {
    ++counters_.malformed;
    disconnect_for(c, reason, detail);
}

// The server's own DISCONNECT, whose reason 3.x clients have to guess.
void Broker::State::send_disconnect(Connection& c, ReasonCode reason) {
    if (c.version != Version::k5 || c.phase != Phase::kConnected) return;
    mqtt::Disconnect disconnect;
    disconnect.reason =
        mqtt::is_allowed_reason(mqtt::PacketType::kDisconnect, reason, mqtt::Sender::kServer)
            ? reason
            : ReasonCode::kMalformedPacket;
    constexpr size_t kSmallestMaximum = 4;  // the packet is this large
    if (c.maximum_packet_size >= kSmallestMaximum) send(c, disconnect);
}

void Broker::State::disconnect_for(Connection& c, ReasonCode reason, const char* detail) {
    std::string text = describe(c) + ": ";
    text += mqtt::name(reason);
    if (*detail != '\0') text += std::string(": ") + detail;
    send_disconnect(c, reason);
    if (c.session != nullptr) leave(c, true);
    close(c, std::move(text));
}

// The session goes on without its connection, or ends with it.
void Broker::State::leave(Connection& c, bool publish_will) {
    Session& session = *c.session;
    forget_congestion(session);
    c.session = nullptr;
    session.connection = nullptr;
    --counters_.clients;
    if (!publish_will) session.will.reset();
    if (session.expiry_interval == 0) return end_early(session);
    // Never early by part of a second: the delay counts from now, not from a full one.
    session.will_due =
        session.will ? now_.mono + std::chrono::seconds(session.will_delay) : base::kNever;
    if (session.will_due <= now_.mono) will_is_due(session);
    go_offline(session);
}

void Broker::State::close(Connection& c, std::string reason) {
    c.phase = Phase::kClosing;
    turn_.close.push_back({c.id, std::move(reason)});
}

// What had to wait for the end of the input.
void Broker::State::settle(Now now) {
    while (!doomed_.empty() || !wills_.empty() || !orphans_.empty() || !delivered_.empty() ||
           !to_admit_.empty()) {
        if (!delivered_.empty()) finish_delivered();
        while (!doomed_.empty()) {
            Connection* c = find(doomed_.back());
            doomed_.pop_back();
            if (c == nullptr || c->phase != Phase::kConnected) continue;
            disconnect_for(*c, ReasonCode::kQuotaExceeded, "its queue is full");
        }
        while (!orphans_.empty()) {
            Orphan orphan = std::move(orphans_.front());
            orphans_.pop_front();
            deliver_orphan(orphan);
        }
        while (!wills_.empty()) {
            OwnedWill will = std::move(wills_.front());
            wills_.pop_front();
            publish_will(will, now);
        }
        while (!to_admit_.empty()) {
            Successor successor = std::move(to_admit_.front());
            to_admit_.pop_front();
            Connection* c = find(successor.connection);
            if (c != nullptr && c->phase == Phase::kAuthenticating) admit(*c, successor.username);
        }
    }
}

}  // namespace pgmqtt::broker
