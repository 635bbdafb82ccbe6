#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {
namespace {

constexpr uint8_t kMaxReturnCode = 5;  // table 3.1 of 3.1.1

void check_code(const Connack& connack, Version version, wire::Reader& in) {
    bool listed = version == Version::k5
                      ? is_allowed_reason(PacketType::kConnack, ReasonCode{connack.code},
                                          Sender::kServer)  // [MQTT-3.2.2-8]
                      : connack.code <= kMaxReturnCode;
    if (!listed) in.protocol_error("reason code is not listed for CONNACK");
    if (connack.code != 0 && connack.session_present)  // [MQTT-3.2.2-4] [MQTT-3.2.2-6]
        in.protocol_error("session present in a refusal");
}

}  // namespace

DecodeStatus decode_connack(ByteView body, Version version, Connack& connack) {
    wire::Reader in(body);
    uint8_t flags = in.u8();
    // [MQTT-3.2.2-1]; in 3.1 the whole byte is reserved.
    if (flags > (version == Version::k31 ? 0 : 1)) in.malformed("reserved CONNACK flag is set");
    connack.session_present = flags == 1;
    connack.code = in.u8();
    if (in.ok()) check_code(connack, version, in);
    if (version == Version::k5) {
        decode_properties(in, Place::kConnack, connack.properties);
    } else {
        connack.properties.clear();
    }
    return in.finish();
}

void encode(const Connack& connack, Version version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kConnack);
    base::put_u8(out, connack.session_present && version != Version::k31 ? 1 : 0);
    base::put_u8(out, connack.code);
    if (version == Version::k5) encode_properties(connack.properties, Place::kConnack, out);
}

}  // namespace pgmqtt::mqtt
