// What a broker says when it lets a client not in, and what to do about it.
#pragma once

#include <string>

namespace pgmqtt::loadtest {

// Of a CONNACK: "CONNACK refuses: Not authorized (135); ..."
std::string connack_refusal(int protocol, unsigned code);

// Nobody there, or whoever is there does not speak MQTT.
std::string no_connection(const std::string& why);

}  // namespace pgmqtt::loadtest
