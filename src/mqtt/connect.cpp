#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/topic.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {
namespace {

constexpr uint8_t kBridgeBit = 0x80;

constexpr uint8_t kUsernameFlag = 0x80;
constexpr uint8_t kPasswordFlag = 0x40;
constexpr uint8_t kWillRetainFlag = 0x20;
constexpr unsigned kWillQosShift = 3;
constexpr uint8_t kWillFlag = 0x04;
constexpr uint8_t kCleanStartFlag = 0x02;
constexpr uint8_t kReservedFlag = 0x01;

unsigned will_qos(uint8_t flags) {
    return flags >> kWillQosShift & 3U;
}

// The protocol name and the level byte belong together: MQIsdp 3, MQTT 4 and 5.
bool set_version(ByteView name, uint8_t level, Connect& connect) {
    uint8_t plain = level & static_cast<uint8_t>(~kBridgeBit);
    connect.bridge = level != plain;
    if (name == "MQIsdp" ? plain != 3 : plain != 4 && plain != 5) return false;
    // No bridge sets the bit in 5.0.
    if (plain == 5 && connect.bridge) return false;
    connect.version = static_cast<Version>(plain);
    return true;
}

void check_flags(uint8_t flags, Version version, wire::Reader& in) {
    if (flags & kReservedFlag) in.malformed("reserved connect flag is set");  // [MQTT-3.1.2-3]
    if (flags & kWillFlag) {
        if (will_qos(flags) == 3) in.malformed("will QoS is 3");  // [MQTT-3.1.2-12]
    } else if (version != Version::k31 && (will_qos(flags) != 0 || (flags & kWillRetainFlag))) {
        // [MQTT-3.1.2-11] [MQTT-3.1.2-13]; 3.1 ignores the two without a will.
        in.malformed("will QoS or will retain without a will");
    }
    if (version != Version::k5 && (flags & kPasswordFlag) && !(flags & kUsernameFlag))
        in.malformed("password without user name");  // [MQTT-3.1.2-22]
}

void decode_will(wire::Reader& in, uint8_t flags, Version version, Will& will) {
    if (version == Version::k5) decode_properties(in, Place::kWill, will.properties);
    will.topic = in.text();
    will.payload = in.binary();
    will.qos = static_cast<Qos>(will_qos(flags));
    will.retain = (flags & kWillRetainFlag) != 0;
    if (in.ok() && !is_valid_topic_name(will.topic))
        in.fail(ReasonCode::kTopicNameInvalid, "will topic is not a topic name");
}

void decode_credentials(wire::Reader& in, uint8_t flags, Connect& connect) {
    // 3.1 lets the remaining length overrule the flags: a name or password may just be missing.
    auto is_there = [&](uint8_t flag) {
        return (flags & flag) && (connect.version != Version::k31 || in.remaining() > 0);
    };
    if (is_there(kUsernameFlag)) connect.username = in.text();
    if (is_there(kPasswordFlag)) connect.password = in.binary();
}

void decode_fields(wire::Reader& in, Connect& connect) {
    uint8_t flags = in.u8();
    if (in.ok()) check_flags(flags, connect.version, in);
    connect.clean_start = (flags & kCleanStartFlag) != 0;
    connect.keep_alive = in.u16();
    if (connect.version == Version::k5) {
        decode_properties(in, Place::kConnect, connect.properties);
        // 3.1.2.11.10
        if (connect.properties.authentication_data && !connect.properties.authentication_method)
            in.protocol_error("authentication data without method");
    }
    connect.client_id = in.text();
    if (!in.ok()) return;
    if (flags & kWillFlag) decode_will(in, flags, connect.version, connect.will.emplace());
    decode_credentials(in, flags, connect);
}

uint8_t connect_flags(const Connect& connect) {
    unsigned flags = connect.clean_start ? kCleanStartFlag : 0U;
    if (connect.username) flags |= kUsernameFlag;
    if (connect.password) flags |= kPasswordFlag;
    if (connect.will) {
        flags |= kWillFlag | static_cast<unsigned>(connect.will->qos) << kWillQosShift;
        if (connect.will->retain) flags |= kWillRetainFlag;
    }
    return static_cast<uint8_t>(flags);
}

}  // namespace

base::Result<Connect, DecodeError> decode_connect(const Frame& frame) {
    wire::Reader in(frame.body);
    if (frame.first_byte != static_cast<unsigned>(PacketType::kConnect) << 4)
        in.malformed("reserved flag bits are set");  // [MQTT-2.2.2-2] [MQTT-2.1.3-1]
    ByteView name = in.text();
    if (!in.ok()) return base::fail(in.fault());
    if (name != "MQTT" && name != "MQIsdp")  // [MQTT-3.1.2-1]
        return base::fail(
            DecodeError{ReasonCode::kUnsupportedProtocolVersion, "protocol name is unknown", 0});

    Connect connect;
    uint8_t level = in.u8();
    if (in.ok() && !set_version(name, level, connect))  // [MQTT-3.1.2-2]
        in.fail(ReasonCode::kUnsupportedProtocolVersion, "protocol level is unknown");
    if (in.ok() && connect.version == Version::k5 && !frame.minimal_length)
        in.malformed("remaining length is longer than it needs");
    if (in.ok()) decode_fields(in, connect);
    if (base::Status<DecodeError> status = in.finish(); !status.ok()) {
        status.error().protocol_level = level;
        return base::fail(status.error());
    }
    return connect;
}

void encode(const Connect& connect, Version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kConnect);
    base::put_prefixed16(out, connect.version == Version::k31 ? "MQIsdp" : "MQTT");
    unsigned level = static_cast<unsigned>(connect.version) | (connect.bridge ? kBridgeBit : 0U);
    base::put_u8(out, static_cast<uint8_t>(level));
    base::put_u8(out, connect_flags(connect));
    base::put_u16(out, connect.keep_alive);
    bool has_properties = connect.version == Version::k5;
    if (has_properties) encode_properties(connect.properties, Place::kConnect, out);
    base::put_prefixed16(out, connect.client_id);
    if (connect.will) {
        if (has_properties) encode_properties(connect.will->properties, Place::kWill, out);
        base::put_prefixed16(out, connect.will->topic);
        base::put_prefixed16(out, connect.will->payload);
    }
    if (connect.username) base::put_prefixed16(out, *connect.username);
    if (connect.password) base::put_prefixed16(out, *connect.password);
}

}  // namespace pgmqtt::mqtt
