// Message properties (MQTT 5.0, section 3.3.2.3) between jsonb, as SQL sees them, and the encoding
// in which they are stored and passed on (mqtt::encode_message_properties).
#pragma once

#include "pg/guard.h"

#include <string>

#include "mqtt/packet.h"

namespace pgmqtt::pg {

// Keys as in interface and README: message_expiry_interval (s), content_type, response_topic,
// correlation_data, payload_format_indicator, user_properties (object of string or array of
// strings). Throws Raised (invalid_parameter_value) that names the key at fault. Not inside a
// guard.
std::string properties_from_jsonb(Datum jsonb);

// The reverse. Pallocs and may raise: inside a guard, with `properties` living above it.
Datum jsonb_from_properties(const mqtt::Properties& properties);

// How many sinks a message has behind it (pg/hops.h), as its user property pgmqtt-hops says.
int hops_of(const mqtt::Properties& properties);
// Says it in `encoded` properties, in place of what they say.
void set_hops(std::string& encoded, int hops);

}  // namespace pgmqtt::pg
