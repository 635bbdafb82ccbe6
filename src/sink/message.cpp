#include "sink/message.h"

#include <cinttypes>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "mqtt/codec.h"

namespace pgmqtt::sink {
namespace {

using base::ByteView;

void append_json_string(ByteView text, std::string& out) {
    out.push_back('"');
    for (char c : text) {
        if (c == '"' || c == '\\') {
            out.push_back('\\');
            out.push_back(c);
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
            out.append(escaped);
        } else {
            out.push_back(c);
        }
    }
    out.push_back('"');
}

// Client, session, packet identifier, and which message under that identifier it is: the moment and
// place of its arrival. The broker repeats them when it hands the message over once more.
std::string own_key(const Message& message) {
    if (message.packet_id == 0) return {};
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "/%" PRIx64 "/%u/%" PRIx64 ".%" PRIx64,
                  static_cast<uint64_t>(message.session_created_at.time_since_epoch().count()),
                  static_cast<unsigned>(message.packet_id),
                  static_cast<uint64_t>(message.received_at.time_since_epoch().count()),
                  message.token);
    return std::string(message.client_id) + numbers;
}

// The values of `name` from `first` on; marks them as written.
void append_values(const std::vector<mqtt::UserProperty>& list, size_t first,
                   std::vector<bool>& written, std::string& out) {
    std::string values;
    size_t count = 0;
    for (size_t i = first; i < list.size(); ++i) {
        if (written[i] || list[i].first != list[first].first) continue;
        written[i] = true;
        if (count++ > 0) values.push_back(',');
        append_json_string(list[i].second, values);
    }
    out.append(count == 1 ? values : "[" + values + "]");
}

}  // namespace

std::shared_ptr<Message> make_message(const MessageParts& parts) {
    auto message = std::make_shared<Message>();
    std::string& bytes = message->bytes;
    bytes.reserve(parts.topic.size() + parts.payload.size() + parts.properties.size() +
                  parts.client_id.size() + parts.username.size());
    // No view moves: the block has its final size already.
    auto keep = [&bytes](ByteView part) {
        size_t start = bytes.size();
        bytes.append(part);
        return ByteView(bytes).substr(start);
    };
    message->topic = keep(parts.topic);
    message->payload = keep(parts.payload);
    message->properties = keep(parts.properties);
    message->client_id = keep(parts.client_id);
    message->username = keep(parts.username);
    return message;
}

std::shared_ptr<Message> make_message(const broker::SinkRecord& record) {
    auto message = make_message({record.message.topic, record.message.payload,
                                 record.message.properties, record.client_id, record.username});
    message->qos = record.message.qos;
    message->retain = record.message.retain;
    message->received_at = record.message.received_at;
    message->token = record.token;
    message->packet_id = record.packet_id;
    message->dup = record.dup;
    message->session_id = record.session_id;
    message->session_created_at = record.session_created_at;
    message->key = own_key(*message);
    return message;
}

uint64_t fingerprint(const Message& message) {
    uint64_t seed = base::hash(message.topic, static_cast<uint64_t>(message.qos));
    return base::hash(message.payload, base::hash(message.properties, seed));
}

const mqtt::Properties& Message::decoded_properties() const {
    if (decoded_ == nullptr) {
        auto decoded = std::make_unique<mqtt::Properties>();
        // What does not decode was not encoded by us; then there are none.
        if (!mqtt::decode_message_properties(properties, *decoded)) *decoded = {};
        decoded_ = std::move(decoded);
    }
    return *decoded_;
}

std::string user_properties_json(const Message& message) {
    if (message.properties.empty()) return {};
    const auto& list = message.decoded_properties().user_properties;
    if (list.empty()) return {};
    std::string json = "{";
    std::vector<bool> written(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
        if (written[i]) continue;
        if (json.size() > 1) json.push_back(',');
        append_json_string(list[i].first, json);
        json.push_back(':');
        append_values(list, i, written, json);
    }
    json.push_back('}');
    return json;
}

}  // namespace pgmqtt::sink
