#include "broker/message.h"

namespace pgmqtt::broker {

MessagePtr make_message(const MessageView& stored, base::Now now) {
    auto message = std::make_shared<Message>();
    message->topic = stored.topic;
    message->copy_payload(std::string(stored.payload));
    message->properties = stored.properties;
    message->qos = stored.qos;
    message->retain = stored.retain;
    message->received_at = stored.received_at;
    message->expires_at = stored.expires_at;
    message->expires = monotonic_expiry(stored.expires_at, now);
    return message;
}

}  // namespace pgmqtt::broker
