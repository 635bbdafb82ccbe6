#include "mqtt/codec.h"

#include "mqtt/packets.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {
namespace {

DecodeStatus refuse(ReasonCode reason, const char* detail) {
    return base::fail(DecodeError{reason, detail, 0});
}

// Table 2-1 of 5.0. CONNECT is not here: whoever calls decode() is past it [MQTT-3.1.0-2].
bool may_send(Sender sender, PacketType type) {
    switch (type) {
        case PacketType::kPublish:
        case PacketType::kPuback:
        case PacketType::kPubrec:
        case PacketType::kPubrel:
        case PacketType::kPubcomp:
        case PacketType::kDisconnect:
        case PacketType::kAuth:
            return true;
        case PacketType::kSubscribe:
        case PacketType::kUnsubscribe:
        case PacketType::kPingreq:
            return sender == Sender::kClient;
        case PacketType::kConnack:
        case PacketType::kSuback:
        case PacketType::kUnsuback:
        case PacketType::kPingresp:
            return sender == Sender::kServer;
        case PacketType::kConnect:
            break;
    }
    return false;
}

// Table 2-2 [MQTT-2.1.3-1] [MQTT-2.2.2-1]. PUBLISH has its own.
bool are_valid_flags(PacketType type, unsigned flags, Version version) {
    constexpr unsigned kDup = 8;
    bool has_qos1 = type == PacketType::kPubrel || type == PacketType::kSubscribe ||
                    type == PacketType::kUnsubscribe;
    if (!has_qos1) return flags == 0;
    // In 3.1 these are messages of QoS 1, which are sent again with DUP set.
    if (version == Version::k31) flags &= ~kDup;
    return flags == 2;
}

DecodeStatus check_header(const Frame& frame, Version version, Sender sender) {
    PacketType type{static_cast<uint8_t>(frame.first_byte >> 4)};
    bool reserved = type == PacketType{0} || (type == PacketType::kAuth && version != Version::k5);
    if (reserved) return refuse(ReasonCode::kMalformedPacket, "packet type is reserved");
    if (!may_send(sender, type))
        return refuse(ReasonCode::kProtocolError,
                      "packet is not for this side, or a second CONNECT");
    if (type == PacketType::kDisconnect && sender == Sender::kServer && version != Version::k5)
        return refuse(ReasonCode::kProtocolError, "only a client disconnects before 5.0");
    if (type != PacketType::kPublish && !are_valid_flags(type, frame.first_byte & 0x0FU, version))
        return refuse(ReasonCode::kMalformedPacket, "reserved flag bits are set");
    if (version == Version::k5 && !frame.minimal_length)
        return refuse(ReasonCode::kMalformedPacket, "remaining length is longer than it needs");
    return base::Done{};
}

// The packet as a T, with the storage of the one that was there if it was a T.
template <class T>
T& as(Packet& packet) {
    if (T* same = std::get_if<T>(&packet)) return *same;
    return packet.emplace<T>();
}

template <class T>
DecodeStatus decode_empty(ByteView body, Packet& packet) {
    packet.emplace<T>();
    return wire::Reader(body).finish();
}

}  // namespace

DecodeStatus decode(const Frame& frame, Version version, Sender sender, Packet& packet) {
    if (DecodeStatus status = check_header(frame, version, sender); !status.ok()) return status;
    switch (PacketType{static_cast<uint8_t>(frame.first_byte >> 4)}) {
        case PacketType::kConnect:
            break;  // refused above
        case PacketType::kConnack:
            return decode_connack(frame.body, version, as<Connack>(packet));
        case PacketType::kPublish:
            return decode_publish(frame, version, as<Publish>(packet), sender);
        case PacketType::kPuback:
            return decode_acknowledgement(frame.body, version, sender, as<Puback>(packet));
        case PacketType::kPubrec:
            return decode_acknowledgement(frame.body, version, sender, as<Pubrec>(packet));
        case PacketType::kPubrel:
            return decode_acknowledgement(frame.body, version, sender, as<Pubrel>(packet));
        case PacketType::kPubcomp:
            return decode_acknowledgement(frame.body, version, sender, as<Pubcomp>(packet));
        case PacketType::kSubscribe:
            return decode_subscribe(frame.body, version, as<Subscribe>(packet));
        case PacketType::kSuback:
            return decode_suback(frame.body, version, as<Suback>(packet));
        case PacketType::kUnsubscribe:
            return decode_unsubscribe(frame.body, version, as<Unsubscribe>(packet));
        case PacketType::kUnsuback:
            return decode_unsuback(frame.body, version, as<Unsuback>(packet));
        case PacketType::kPingreq:
            return decode_empty<Pingreq>(frame.body, packet);
        case PacketType::kPingresp:
            return decode_empty<Pingresp>(frame.body, packet);
        case PacketType::kDisconnect:
            return decode_disconnect(frame.body, version, sender, as<Disconnect>(packet));
        case PacketType::kAuth:
            return decode_auth(frame.body, sender, as<Auth>(packet));
    }
    return refuse(ReasonCode::kMalformedPacket, "packet type is reserved");
}

void encode(const Packet& packet, Version version, std::string& out) {
    std::visit([&](const auto& alternative) { encode(alternative, version, out); }, packet);
}

void encode(const Pingreq&, Version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kPingreq);
}

void encode(const Pingresp&, Version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kPingresp);
}

}  // namespace pgmqtt::mqtt
