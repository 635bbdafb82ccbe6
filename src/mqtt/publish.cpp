#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/topic.h"
#include "mqtt/utf8.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {
namespace {

constexpr uint8_t kRetainFlag = 0x01;
constexpr unsigned kQosShift = 1;
constexpr uint8_t kDupFlag = 0x08;

// Looked at only when the topic is not a valid name: says which rule it breaks.
void judge_topic(wire::Reader& in, const Publish& publish, Version version) {
    if (!publish.topic.empty()) {
        if (!is_valid_string(publish.topic))
            return in.malformed("topic is not UTF-8, or holds U+0000");
        // [MQTT-3.3.2-2]
        return in.fail(ReasonCode::kTopicNameInvalid, "topic name has a wildcard");
    }
    if (version != Version::k5)
        return in.fail(ReasonCode::kTopicNameInvalid, "topic name is empty");
    // 3.3.2.1; whether the alias is known is the connection's business.
    if (!publish.properties.topic_alias) in.protocol_error("neither topic name nor alias");
}

size_t remaining_length(const Publish& publish, size_t properties, Version version) {
    size_t length = 2 + publish.topic.size() + publish.payload.size();
    if (publish.qos != Qos::k0) length += 2;
    if (version == Version::k5)
        length += wire::variable_integer_size(static_cast<uint32_t>(properties)) + properties;
    return length;
}

size_t property_bytes(const Publish& publish, Version version) {
    return version == Version::k5 ? properties_size(publish.properties, Place::kPublish) : 0;
}

}  // namespace

DecodeStatus decode_publish(const Frame& frame, Version version, Publish& publish, Sender sender) {
    wire::Reader in(frame.body);
    unsigned qos = frame.first_byte >> kQosShift & 3U;
    publish.qos = static_cast<Qos>(qos);
    publish.dup = (frame.first_byte & kDupFlag) != 0;
    publish.retain = (frame.first_byte & kRetainFlag) != 0;
    if (qos == 3) in.malformed("QoS is 3");                              // [MQTT-3.3.1-4]
    if (publish.dup && qos == 0) in.malformed("DUP is set with QoS 0");  // [MQTT-3.3.1-2]

    publish.topic = in.binary();
    publish.packet_id = qos == 0 ? uint16_t{0} : in.packet_id();
    if (version == Version::k5) {
        if (!frame.minimal_length) in.malformed("remaining length is longer than it needs");
        decode_properties(in, Place::kPublish, publish.properties);
        // [MQTT-3.3.4-6]
        if (sender == Sender::kClient && !publish.properties.subscription_identifiers.empty())
            in.protocol_error("subscription identifier from a client");
    } else {
        publish.properties.clear();
    }
    publish.payload = in.rest();
    if (in.ok() && !is_valid_topic_name(publish.topic)) judge_topic(in, publish, version);
    return in.status();
}

void encode_publish_head(const Publish& publish, Version version, std::string& out) {
    unsigned first = static_cast<unsigned>(PacketType::kPublish) << 4 |
                     static_cast<unsigned>(publish.qos) << kQosShift;
    if (publish.dup) first |= kDupFlag;
    if (publish.retain) first |= kRetainFlag;
    base::put_u8(out, static_cast<uint8_t>(first));
    size_t properties = property_bytes(publish, version);
    size_t length = remaining_length(publish, properties, version);
    wire::put_variable_integer(out, static_cast<uint32_t>(length));
    base::put_prefixed16(out, publish.topic);
    if (publish.qos != Qos::k0) base::put_u16(out, publish.packet_id);
    if (version == Version::k5)
        encode_properties(publish.properties, Place::kPublish, properties, out);
}

void encode(const Publish& publish, Version version, std::string& out) {
    encode_publish_head(publish, version, out);
    out.append(publish.payload);
}

size_t encoded_size(const Publish& publish, Version version) {
    size_t length = remaining_length(publish, property_bytes(publish, version), version);
    return 1 + wire::variable_integer_size(static_cast<uint32_t>(length)) + length;
}

}  // namespace pgmqtt::mqtt
