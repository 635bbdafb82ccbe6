// PUBACK, PUBREC, PUBREL, PUBCOMP: sections 3.4 to 3.7 are one but for the reason codes.
#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {

template <PacketType kType>
DecodeStatus decode_acknowledgement(ByteView body, Version version, Sender sender,
                                    Acknowledgement<kType>& acknowledgement) {
    wire::Reader in(body);
    acknowledgement.packet_id = in.packet_id();
    acknowledgement.reason = ReasonCode::kSuccess;
    acknowledgement.properties.clear();
    // Both may be left out from the end, sections 3.4.2.1 and 3.4.2.2.1.
    if (version == Version::k5 && in.remaining() > 0) {
        acknowledgement.reason = ReasonCode{in.u8()};
        if (!is_allowed_reason(kType, acknowledgement.reason, sender))  // [MQTT-3.4.2-1]
            in.protocol_error("reason code is not listed for this packet");
        if (in.remaining() > 0)
            decode_properties(in, Place::kAcknowledgement, acknowledgement.properties);
    }
    return in.finish();
}

template <PacketType kType>
void encode(const Acknowledgement<kType>& acknowledgement, Version version, std::string& out) {
    constexpr uint8_t kFlags = kType == PacketType::kPubrel ? 2 : 0;  // [MQTT-3.6.1-1]
    wire::PacketWriter packet(out, kType, kFlags);
    base::put_u16(out, acknowledgement.packet_id);
    if (version != Version::k5) return;
    bool has_properties = properties_size(acknowledgement.properties, Place::kAcknowledgement) > 0;
    if (has_properties || acknowledgement.reason != ReasonCode::kSuccess)
        base::put_u8(out, static_cast<uint8_t>(acknowledgement.reason));
    if (has_properties) encode_properties(acknowledgement.properties, Place::kAcknowledgement, out);
}

template DecodeStatus decode_acknowledgement(ByteView, Version, Sender, Puback&);
template DecodeStatus decode_acknowledgement(ByteView, Version, Sender, Pubrec&);
template DecodeStatus decode_acknowledgement(ByteView, Version, Sender, Pubrel&);
template DecodeStatus decode_acknowledgement(ByteView, Version, Sender, Pubcomp&);
template void encode(const Puback&, Version, std::string&);
template void encode(const Pubrec&, Version, std::string&);
template void encode(const Pubrel&, Version, std::string&);
template void encode(const Pubcomp&, Version, std::string&);

}  // namespace pgmqtt::mqtt
