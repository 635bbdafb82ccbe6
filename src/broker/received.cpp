// Bytes to frames, frames to packets, packets to the file that is named after them.
#include <algorithm>
#include <chrono>

#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

// Room for the five longest strings a CONNECT can hold and some properties: what a stranger may
// make us keep before we know him.
constexpr uint32_t kMaxConnectPacket = 384 << 10;

// Between the fixed header of a CONNECT that is refused and its protocol version.
constexpr std::chrono::seconds kVersionPatience{1};

constexpr unsigned kTypeShift = 4;

}  // namespace

size_t Broker::State::received(ConnectionId id, ByteView bytes, Now now, base::Input* input) {
    begin_input(now);
    input_ = input;
    Connection* c = find(id);
    if (c == nullptr || c->phase == Phase::kClosing) return bytes.size();
    size_t consumed = 0;
    if (c->phase == Phase::kAwaitingConnect && !read_connect(*c, bytes, consumed, now)) {
        c->traffic.bytes_in += consumed;
        counters_.bytes_in += consumed;
        settle(now);
        return c->phase == Phase::kClosing ? bytes.size() : consumed;
    }
    // Answers that nobody reads must not pile up; messages have their own bounds below this.
    size_t output_limit = 2 * config_.client_buffer + config_.max_packet_size;
    while (c->phase == Phase::kConnected && c->paused == 0 && !c->doomed) {
        mqtt::Frame frame;
        auto state = mqtt::next_frame(bytes.substr(consumed), c->packet_size_limit, frame);
        if (!state.ok()) {
            protocol_error(*c, state.error().reason, state.error().detail);
            break;
        }
        if (*state == mqtt::FrameState::kIncomplete) {
            if (input_ != nullptr && frame.size > 0) input_->expect(frame.size);
            break;
        }
        consumed += frame.size;
        ++counters_.packets_in;
        handle(*c, frame, now);
        if (c->outbox.size() > output_limit) pause(*c, kPausedForOutput);
    }
    c->traffic.bytes_in += consumed;
    counters_.bytes_in += consumed;
    note_life(*c, consumed, bytes.size() - consumed);
    settle(now);
    // What is behind the end is of no interest; kept, it would fill the buffer, and a full buffer
    // ends the connection before our DISCONNECT is sent.
    return c->phase == Phase::kClosing ? bytes.size() : consumed;
}

// Packets are signs of life [MQTT-3.1.2-22]. So is progress with a large one, which on a slow line
// may take longer than the keep alive; but not a byte now and then.
void Broker::State::note_life(Connection& c, size_t consumed, size_t unfinished) {
    constexpr size_t kProgress = 1024;
    if (consumed == 0 && unfinished < c.unfinished + kProgress) return;
    c.last_input = now_.mono;
    c.unfinished = unfinished;
}

// A CONNECT that is too large is told so if it is one of 5.0, whose first bytes say that. Nothing
// else of it is waited for, and for those not as long as for a CONNECT that may be taken.
void Broker::State::refuse_bad_frame(Connection& c, const mqtt::Frame& frame,
                                     const mqtt::DecodeError& error) {
    constexpr ByteView kVersion5("\0\4MQTT\5", 7);
    if (error.reason == ReasonCode::kPacketTooLarge) {
        ByteView said = frame.body.substr(0, kVersion5.size());
        if (said.size() < kVersion5.size() && kVersion5.starts_with(said)) {
            c.connect_deadline = std::min(c.connect_deadline, now_.mono + kVersionPatience);
            return arm(c);
        }
        if (said == kVersion5) {
            c.version = Version::k5;
            return refuse_connect(c, error.reason, error.detail);
        }
    }
    ++counters_.malformed;
    close(c, describe(c) + ": " + error.detail);
}

// True when the CONNECT is dealt with.
bool Broker::State::read_connect(Connection& c, ByteView bytes, size_t& consumed, Now) {
    if (bytes.empty()) return false;
    // Not even the length of anything else is believed [MQTT-3.1.0-1].
    auto type = static_cast<uint8_t>(bytes[0]) >> kTypeShift;
    if (type != static_cast<uint8_t>(mqtt::PacketType::kConnect)) {
        ++counters_.malformed;
        close(c, describe(c) + ": first packet is not CONNECT");
        return false;
    }
    mqtt::Frame frame;
    uint32_t limit = std::min(config_.max_packet_size, kMaxConnectPacket);
    auto state = mqtt::next_frame(bytes, limit, frame);
    if (!state.ok()) {
        refuse_bad_frame(c, frame, state.error());
        return false;
    }
    if (*state == mqtt::FrameState::kIncomplete) return false;
    consumed = frame.size;
    ++counters_.packets_in;
    handle_connect(c, frame, bytes.substr(0, frame.size));
    return true;
}

void Broker::State::handle(Connection& c, const mqtt::Frame& frame, Now now) {
    if (frame.first_byte >> kTypeShift == static_cast<uint8_t>(mqtt::PacketType::kPublish)) {
        auto status = mqtt::decode_publish(frame, c.version, publish_);
        if (!status.ok()) return protocol_error(c, status.error().reason, status.error().detail);
        return handle_publish(c, publish_, now);
    }
    auto status = mqtt::decode(frame, c.version, mqtt::Sender::kClient, packet_);
    if (!status.ok()) return protocol_error(c, status.error().reason, status.error().detail);
    handle(c, packet_);
}

void Broker::State::handle(Connection& c, mqtt::Packet& packet) {
    if (auto* puback = std::get_if<mqtt::Puback>(&packet)) return handle_puback(c, *puback);
    if (auto* pubrec = std::get_if<mqtt::Pubrec>(&packet)) return handle_pubrec(c, *pubrec);
    if (auto* pubrel = std::get_if<mqtt::Pubrel>(&packet)) return handle_pubrel(c, *pubrel);
    if (auto* pubcomp = std::get_if<mqtt::Pubcomp>(&packet)) return handle_pubcomp(c, *pubcomp);
    if (auto* subscribe = std::get_if<mqtt::Subscribe>(&packet)) {
        return handle_subscribe(c, *subscribe);
    }
    if (auto* unsubscribe = std::get_if<mqtt::Unsubscribe>(&packet)) {
        return handle_unsubscribe(c, *unsubscribe);
    }
    // [MQTT-3.12.4-1]
    if (std::holds_alternative<mqtt::Pingreq>(packet)) return send(c, mqtt::Pingresp{});
    if (auto* disconnect = std::get_if<mqtt::Disconnect>(&packet)) {
        return handle_disconnect(c, *disconnect);
    }
    // No authentication method was agreed on in CONNECT [MQTT-4.12.0-7].
    if (std::holds_alternative<mqtt::Auth>(packet)) {
        return protocol_error(c, ReasonCode::kProtocolError, "AUTH without a method in CONNECT");
    }
    // The codec lets no other packet through from a client.
    protocol_error(c, ReasonCode::kProtocolError, "packet is not for a server");
}

}  // namespace pgmqtt::broker
