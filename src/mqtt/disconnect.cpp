// DISCONNECT and AUTH, sections 3.14 and 3.15.
#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {

DecodeStatus decode_disconnect(ByteView body, Version version, Sender sender,
                               Disconnect& disconnect) {
    wire::Reader in(body);
    disconnect.reason = ReasonCode::kSuccess;
    disconnect.properties.clear();
    // Both may be left out from the end, sections 3.14.2.1 and 3.14.2.2.1.
    if (version == Version::k5 && in.remaining() > 0) {
        disconnect.reason = ReasonCode{in.u8()};
        if (!is_allowed_reason(PacketType::kDisconnect, disconnect.reason, sender))
            in.protocol_error("reason code is not listed for DISCONNECT");  // [MQTT-3.14.2-1]
        if (in.remaining() > 0) decode_properties(in, Place::kDisconnect, disconnect.properties);
        if (sender == Sender::kServer && disconnect.properties.session_expiry_interval)
            in.protocol_error("session expiry interval from a server");  // [MQTT-3.14.2-2]
    }
    return in.finish();
}

void encode(const Disconnect& disconnect, Version version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kDisconnect);
    if (version != Version::k5) return;
    bool has_properties = properties_size(disconnect.properties, Place::kDisconnect) > 0;
    if (has_properties || disconnect.reason != ReasonCode::kSuccess)
        base::put_u8(out, static_cast<uint8_t>(disconnect.reason));
    if (has_properties) encode_properties(disconnect.properties, Place::kDisconnect, out);
}

DecodeStatus decode_auth(ByteView body, Sender sender, Auth& auth) {
    wire::Reader in(body);
    auth.reason = ReasonCode::kSuccess;
    auth.properties.clear();
    bool is_short = body.empty();  // success without properties, section 3.15.2.1
    if (!is_short) auth.reason = ReasonCode{in.u8()};
    if (!is_allowed_reason(PacketType::kAuth, auth.reason, sender))  // [MQTT-3.15.2-1]
        in.protocol_error("reason code is not listed for AUTH");
    if (!is_short) {
        decode_properties(in, Place::kAuth, auth.properties);
        // 3.15.2.2.2
        if (!auth.properties.authentication_method)
            in.protocol_error("AUTH without authentication method");
    }
    return in.finish();
}

void encode(const Auth& auth, Version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kAuth);
    if (auth.reason == ReasonCode::kSuccess && properties_size(auth.properties, Place::kAuth) == 0)
        return;
    base::put_u8(out, static_cast<uint8_t>(auth.reason));
    encode_properties(auth.properties, Place::kAuth, out);
}

}  // namespace pgmqtt::mqtt
