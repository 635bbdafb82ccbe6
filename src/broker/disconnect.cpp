// DISCONNECT, section 3.14, and every other way in which connections and sessions end.
#include <utility>

#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::handle_disconnect(Connection& c, const mqtt::Disconnect& disconnect) {
    if (disconnect.properties.session_expiry_interval.value_or(0) > 0 &&
        c.session_expiry_interval == 0) {  // section 3.14.2.2.2
        return protocol_error(c, ReasonCode::kProtocolError,
                              "session expiry interval raised from 0");
    }
    ++counters_.disconnects;
    // Only a normal disconnection takes the will back [MQTT-3.14.4-3].
    end_session(c, disconnect.reason != ReasonCode::kSuccess);
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
    if (c.session != nullptr) end_session(c, true);
    close(c, std::move(text));
}

void Broker::State::end_session(Connection& c, bool publish_will) {
    Session& session = *c.session;
    forget_congestion(session);
    if (publish_will && c.will) {
        wills_.push_back({std::move(c.will), session.client_id, session.username});
    }
    c.will.reset();
    for (auto& [filter, subscription] : session.subscriptions) subscriptions_.remove(subscription);
    counters_.subscriptions -= session.subscriptions.size();
    counters_.queued -= session.queue.size();
    counters_.queued_bytes -= session.queued_bytes;
    counters_.inflight -= session.window.count();
    --counters_.clients;
    c.session = nullptr;
    // A session ends with its connection for now: CONNACK says so, too.
    sessions_.erase(sessions_.find(session.client_id));
}

void Broker::State::close(Connection& c, std::string reason) {
    c.phase = Phase::kClosing;
    turn_.close.push_back({c.id, std::move(reason)});
}

// What had to wait for the end of the input.
void Broker::State::settle(Now now) {
    while (!doomed_.empty() || !wills_.empty()) {
        while (!doomed_.empty()) {
            Connection* c = find(doomed_.back());
            doomed_.pop_back();
            if (c == nullptr || c->phase != Phase::kConnected) continue;
            disconnect_for(*c, ReasonCode::kQuotaExceeded, "its queue is full");
        }
        while (!wills_.empty()) {
            OwnedWill will = std::move(wills_.front());
            wills_.pop_front();
            publish_will(will, now);
        }
    }
}

}  // namespace pgmqtt::broker
