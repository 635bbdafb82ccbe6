#include "broker/message_view.h"

#include "broker/wall_time.h"

namespace pgmqtt::broker {

void put_message(std::string& out, const MessageView& message) {
    base::put_prefixed16(out, message.topic);
    base::put_prefixed32(out, message.payload);
    base::put_u8(out, static_cast<uint8_t>(message.qos));
    base::put_u8(out, message.retain ? 1 : 0);
    base::put_prefixed32(out, message.properties);
    put_time(out, message.received_at);
    put_time(out, message.expires_at);
}

bool get_message(base::ByteReader& reader, MessageView& message) {
    message.topic = reader.prefixed16();
    message.payload = reader.prefixed32();
    uint8_t qos = reader.u8();
    uint8_t retain = reader.u8();
    message.properties = reader.prefixed32();
    message.received_at = get_time(reader);
    message.expires_at = get_time(reader);
    if (!reader.ok() || qos > 2 || retain > 1) return false;
    message.qos = static_cast<mqtt::Qos>(qos);
    message.retain = retain == 1;
    return true;
}

}  // namespace pgmqtt::broker
