// The will, section 3.1.2.5. Sessions end with their connection, so a will delay never outlasts it
// [MQTT-3.1.3-9]: the will is due at once.
#include <algorithm>
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

void Broker::State::keep_will(Connection& c, const mqtt::Will& will, Now now) {
    auto message = std::make_shared<Message>();
    message->topic = will.topic;
    message->payload = will.payload;
    message->qos = std::min(will.qos, Qos::k1);
    message->retain = will.retain;
    message->received_at = now.wall;
    if (c.version == Version::k5) {
        mqtt::encode_message_properties(will.properties, message->properties);
    }
    message->charge(message_bytes_);
    c.will = std::move(message);
}

void Broker::State::publish_will(const OwnedWill& will, Now now) {
    if (mqtt::begins_with_dollar(will.message->topic)) {  // a bridge's: see connect.cpp
        ++counters_.publishes_refused;
        return;
    }
    Origin origin;
    origin.client_id = will.client_id;
    origin.username = will.username;
    // Received now, as far as expiry and rows are concerned [MQTT-3.1.2-8].
    MessageView message = will.message->view();
    message.received_at = now.wall;
    route_stored(message, origin, now);
}

}  // namespace pgmqtt::broker
