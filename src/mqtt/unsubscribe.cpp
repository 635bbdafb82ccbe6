// UNSUBSCRIBE and UNSUBACK, sections 3.10 and 3.11.
#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/topic.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {

DecodeStatus decode_unsubscribe(ByteView body, Version version, Unsubscribe& unsubscribe) {
    wire::Reader in(body);
    unsubscribe.packet_id = in.packet_id();
    unsubscribe.properties.clear();
    if (version == Version::k5) decode_properties(in, Place::kUnsubscribe, unsubscribe.properties);
    unsubscribe.filters.clear();
    // [MQTT-3.10.3-2]
    if (in.ok() && in.remaining() == 0) in.protocol_error("UNSUBSCRIBE without a filter");
    while (in.ok() && in.remaining() > 0) {
        ByteView filter = unsubscribe.filters.emplace_back(in.text());
        bool shared = version == Version::k5 && is_shared_filter(filter);
        if (!(shared ? is_valid_shared_filter(filter) : is_valid_topic_filter(filter)))
            in.fail(ReasonCode::kTopicFilterInvalid, "topic filter is invalid");
    }
    return in.status();
}

void encode(const Unsubscribe& unsubscribe, Version version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kUnsubscribe, 2);
    base::put_u16(out, unsubscribe.packet_id);
    if (version == Version::k5) encode_properties(unsubscribe.properties, Place::kUnsubscribe, out);
    for (ByteView filter : unsubscribe.filters) base::put_prefixed16(out, filter);
}

DecodeStatus decode_unsuback(ByteView body, Version version, Unsuback& unsuback) {
    wire::Reader in(body);
    unsuback.packet_id = in.packet_id();
    unsuback.properties.clear();
    unsuback.codes.clear();
    if (version != Version::k5) return in.finish();

    decode_properties(in, Place::kUnsuback, unsuback.properties);
    if (in.ok() && in.remaining() == 0) in.protocol_error("UNSUBACK without a code");
    while (in.ok() && in.remaining() > 0) {
        unsuback.codes.push_back(in.u8());
        // [MQTT-3.11.3-2]
        if (!is_allowed_reason(PacketType::kUnsuback, ReasonCode{unsuback.codes.back()},
                               Sender::kServer))
            in.protocol_error("code is not listed for UNSUBACK");
    }
    return in.status();
}

void encode(const Unsuback& unsuback, Version version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kUnsuback);
    base::put_u16(out, unsuback.packet_id);
    if (version != Version::k5) return;
    encode_properties(unsuback.properties, Place::kUnsuback, out);
    for (uint8_t code : unsuback.codes) base::put_u8(out, code);
}

}  // namespace pgmqtt::mqtt
