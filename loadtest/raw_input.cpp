// What a raw client reads. PUBLISH and acknowledgements are decoded here, by hand; the rest, which
// is rare, by the broker's codec.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "loadtest/raw_client.h"
#include "loadtest/refusal.h"

namespace pgmqtt::loadtest {
namespace {

constexpr size_t kLargePacket = 32768;

enum Type : uint8_t {
    kConnack = 2,
    kPublish = 3,
    kPuback = 4,
    kPubrec = 5,
    kPubrel = 6,
    kPubcomp = 7,
    kSuback = 9,
    kDisconnect = 14,
};

uint16_t u16_at(base::ByteView bytes, size_t at) {
    return static_cast<uint16_t>(static_cast<uint8_t>(bytes[at]) << 8 |
                                 static_cast<uint8_t>(bytes[at + 1]));
}

// A variable byte integer at `at`, which moves behind it; false if it does not end within `bytes`.
bool take_variable(base::ByteView bytes, size_t& at, size_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 28 && at < bytes.size(); shift += 7) {
        auto byte = static_cast<uint8_t>(bytes[at++]);
        value |= size_t{byte & 127U} << shift;
        if ((byte & 128) == 0) return true;
    }
    return false;
}

// Of the packet at the front, as far as its bytes tell; 0 otherwise.
size_t packet_size(base::ByteView bytes) {
    size_t at = 1, remaining;
    return bytes.size() >= 2 && take_variable(bytes, at, remaining) ? at + remaining : 0;
}

mqtt::Frame frame_of(uint8_t first, base::ByteView body) {
    return {.first_byte = first, .body = body, .size = body.size() + 2, .minimal_length = true};
}

}  // namespace

void RawClient::read_some() {
    if (wanted_ > kLargePacket) return read_large();
    std::vector<char>& buffer = loop_.read_buffer();
    size_t kept = partial_.size();
    std::memcpy(buffer.data(), partial_.data(), kept);
    size_t got = receive(buffer.data() + kept, buffer.size() - kept);
    if (got == 0) return;
    base::ByteView bytes(buffer.data(), kept + got);
    size_t used = take_packets(bytes);
    if (!is_open()) return;
    base::ByteView rest = bytes.substr(used);
    wanted_ = packet_size(rest);
    if (wanted_ > kLargePacket) partial_.reserve(wanted_);
    partial_.assign(rest);
    filled_ = rest.size();
    if (wanted_ > kLargePacket) partial_.resize(wanted_);
}

// The rest of a large packet goes where its front is: it is not copied again and again.
void RawClient::read_large() {
    filled_ += receive(partial_.data() + filled_, wanted_ - filled_);
    if (!is_open() || filled_ < wanted_) return;
    take_packets(partial_);
    if (!is_open()) return;
    partial_.clear();
    wanted_ = 0;
}

// 0 if nothing came, or the connection has ended.
size_t RawClient::receive(char* at, size_t size) {
    ssize_t got = recv(fd_, at, size, 0);
    if (got > 0) {
        read_at_ = monotonic_now();
        return static_cast<size_t>(got);
    }
    if (got == 0) {
        broken("the broker closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
        broken(std::generic_category().message(errno));
    }
    return 0;
}

size_t RawClient::take_packets(base::ByteView bytes) {
    size_t start = 0;
    while (is_open() && start + 2 <= bytes.size()) {
        size_t at = start + 1;
        size_t remaining;
        if (!take_variable(bytes, at, remaining)) {
            if (bytes.size() - start > 5) fault("a remaining length of more than 4 bytes");
            break;
        }
        if (bytes.size() - at < remaining) break;
        take_packet(static_cast<uint8_t>(bytes[start]), bytes.substr(at, remaining));
        start = at + remaining;
    }
    return start;
}

void RawClient::take_packet(uint8_t first, base::ByteView body) {
    uint8_t type = first >> 4;
    if (type == kPublish) return take_publish(first, body);
    if (type >= kPuback && type <= kPubcomp) return take_acknowledgement(type, body);
    if (type == kConnack) return take_connack(body);
    if (type == kSuback) return take_suback(body);
    if (type == kDisconnect) {
        auto code = body.empty() ? 0U : static_cast<unsigned>(static_cast<uint8_t>(body[0]));
        return broken("DISCONNECT with reason " + std::to_string(code) + " (" +
                      std::string(mqtt::name(static_cast<mqtt::ReasonCode>(code))) + ")");
    }
}

void RawClient::take_publish(uint8_t first, base::ByteView body) {
    auto qos = static_cast<uint8_t>(first >> 1 & 3);
    if (body.size() < 2) return fault("PUBLISH without a topic");
    size_t topic_size = u16_at(body, 0);
    size_t at = 2 + topic_size;
    if (body.size() < at + (qos != 0 ? 2 : 0)) return fault("PUBLISH ends inside its topic");
    uint16_t id = 0;
    if (qos != 0) {
        id = u16_at(body, at);
        at += 2;
    }
    if (is_5()) {
        size_t properties;
        if (!take_variable(body, at, properties) || body.size() - at < properties)
            return fault("PUBLISH ends inside its properties");
        at += properties;
    }
    bool held = false;
    if (qos == 2) {
        if (held_.empty()) held_.resize(65536);
        held = held_[id];
        held_[id] = true;
    }
    // Whoever publishes again with the same identifier before PUBREL repeats itself.
    if (!held)
        events_.on_delivery(*this, {.topic = body.substr(2, topic_size),
                                    .payload = body.substr(at),
                                    .qos = qos,
                                    .retain = (first & 1) != 0,
                                    .dup = (first & 8) != 0,
                                    .at = read_at_});
    if (qos != 0 && is_open()) acknowledge(qos == 1 ? 0x40 : 0x50, id);
}

void RawClient::take_acknowledgement(uint8_t type, base::ByteView body) {
    if (body.size() < 2) return fault("an acknowledgement without a packet identifier");
    uint16_t id = u16_at(body, 0);
    bool accepted = body.size() < 3 || static_cast<uint8_t>(body[2]) < 0x80;
    switch (type) {
        case kPubrec:
            if (!accepted) return acknowledged(id, false);
            if (!in_flight_.is_used(id)) return fault("PUBREC for no PUBLISH");
            return acknowledge(0x62, id);
        case kPubrel:
            if (!held_.empty()) held_[id] = false;
            return acknowledge(0x70, id);
        default:
            return acknowledged(id, accepted);
    }
}

void RawClient::acknowledged(uint16_t id, bool accepted) {
    std::optional<uint64_t> token = in_flight_.give_back(id);
    if (!token) return fault("an acknowledgement for no PUBLISH");
    events_.on_acknowledged(*this, *token, accepted, read_at_);
}

void RawClient::acknowledge(uint8_t first, uint16_t id) {
    char* at = out_.extend(4);
    at[0] = static_cast<char>(first);
    at[1] = 2;
    at[2] = static_cast<char>(id >> 8);
    at[3] = static_cast<char>(id);
    wants_flush();
}

void RawClient::take_connack(base::ByteView body) {
    mqtt::Version version = is_5() ? mqtt::Version::k5 : mqtt::Version::k311;
    mqtt::Packet packet;
    if (connack_seen_ ||
        !mqtt::decode(frame_of(kConnack << 4, body), version, mqtt::Sender::kServer, packet))
        return fault("CONNACK");
    const auto& connack = std::get<mqtt::Connack>(packet);
    if (connack.code != 0) return refused(connack_refusal(options_.protocol, connack.code));
    uint16_t limit = connack.properties.receive_maximum.value_or(65535);
    in_flight_.reset(std::min(options_.inflight, limit));
    connack_seen_ = true;
    events_.on_connected(*this, {});
}

void RawClient::take_suback(base::ByteView body) {
    mqtt::Version version = is_5() ? mqtt::Version::k5 : mqtt::Version::k311;
    mqtt::Packet packet;
    if (!mqtt::decode(frame_of(kSuback << 4, body), version, mqtt::Sender::kServer, packet))
        return fault("SUBACK");
    const auto& codes = std::get<mqtt::Suback>(packet).codes;
    bool granted =
        std::all_of(codes.begin(), codes.end(), [](uint8_t code) { return code < 0x80; });
    events_.on_subscribed(*this, granted);
}

}  // namespace pgmqtt::loadtest
