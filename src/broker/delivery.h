// A message on its way to one client, with what its subscription makes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "broker/message.h"

namespace pgmqtt::broker {

struct Delivery {
    MessagePtr message{};  // null in flight when nobody can ask for it again
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
    bool may_be_sent = false;  // a client may have it: says DUP, and QoS 2 does not expire
    bool sent_is_stored = false;
    std::vector<uint32_t> identifiers{};
    uint64_t sequence = 0;  // 0: gets one when it enters the window
    uint64_t batch = 0;     // of the store; it does not leave before that is stored
    uint64_t share = 0;     // ShareGroup::id, when it is for one of a group; forgotten by a restart
};

}  // namespace pgmqtt::broker
