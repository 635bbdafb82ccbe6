// A message on its way into one or several sinks, on the C++ heap: it outlives the batch it came
// with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/time.h"
#include "broker/batch.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"

namespace pgmqtt::sink {

struct Message {
    Message() = default;
    Message(const Message&) = delete;  // the views point into `bytes`

    std::string bytes;
    base::ByteView topic;  // UTF-8, as are client_id and username
    base::ByteView payload;
    base::ByteView properties;  // mqtt::encode_message_properties
    base::ByteView client_id;   // empty: came from SQL
    base::ByteView username;    // empty: anonymous
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
    base::WallTime received_at{};

    // As in broker::SinkRecord; without an identifier it does not come again.
    uint16_t packet_id = 0;
    bool dup = false;
    uint64_t session_id = 0;
    base::WallTime session_created_at{};
    // In UTF-8; empty: none. Of a repetition it becomes that of what it repeats: message_keys.h.
    mutable std::string key;

    // What its completion will say.
    uint64_t token = 0;
    size_t sinks = 0;  // that it came for
    size_t open = 0;   // sinks that are not done with it
    mqtt::ReasonCode reason = mqtt::ReasonCode::kSuccess;
    std::string reason_string;

    // `properties` decoded, when first asked for; lives as long as the message.
    const mqtt::Properties& decoded_properties() const;

   private:
    mutable std::unique_ptr<mqtt::Properties> decoded_;
};

// Of what makes two messages the same: topic, payload, properties, QoS.
uint64_t fingerprint(const Message& message);

// The parts of a message whose bytes lie somewhere else.
struct MessageParts {
    base::ByteView topic, payload, properties, client_id, username;
};

// Copies the parts, all into one block.
std::shared_ptr<Message> make_message(const MessageParts& parts);
std::shared_ptr<Message> make_message(const broker::SinkRecord& record);

// The user properties as a JSON object in UTF-8: {"unit": "C", "tag": ["a", "b"]}, an array where a
// name stands several times. Empty when there are none.
std::string user_properties_json(const Message& message);

}  // namespace pgmqtt::sink
