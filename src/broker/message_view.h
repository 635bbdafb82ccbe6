// An application message as bytes that someone else owns.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/time.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

using base::ByteView;

// An application message, as it travels between processes. Views point into the batch.
struct MessageView {
    ByteView topic;
    ByteView payload;
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
    ByteView properties{};  // mqtt::encode_message_properties
    base::WallTime received_at{};
    base::WallTime expires_at = base::WallTime::max();  // max: never
};

void put_message(std::string& out, const MessageView& message);
bool get_message(base::ByteReader& reader, MessageView& message);

}  // namespace pgmqtt::broker
