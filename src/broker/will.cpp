// The will, section 3.1.2.5. It is due when its delay has passed or its session ends, whichever is
// first; a connection before that takes it back [MQTT-3.1.3-9].
#include <algorithm>
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

MessagePtr Broker::State::will_message(const Connection& c, const mqtt::Will& will) const {
    auto message = std::make_shared<Message>();
    message->topic = will.topic;
    message->copy_payload(std::string(will.payload));
    message->qos = will.qos;
    message->retain = will.retain;
    message->received_at = now_.wall;
    if (c.version == Version::k5) {
        mqtt::encode_message_properties(will.properties, message->properties);
    }
    return message;
}

void Broker::State::will_is_due(Session& session) {
    wills_.push_back({std::move(session.will), session.client_id, session.username});
    session.will.reset();
    session.will_due = base::kNever;
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
