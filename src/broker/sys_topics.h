// What the topics `$SYS/broker/...` say, under mosquitto's names and in its formats.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "broker/counters.h"
#include "broker/load_averages.h"

namespace pgmqtt::broker {

// The first level of them, which no filter meets but by its name [MQTT-4.7.2-1].
inline constexpr base::ByteView kSysLevel = "$SYS";

// Whether the filter, which is not a shared one, may match one of them.
bool is_sys_filter(base::ByteView filter);

// Calls visit(topic, value) for each of them, always in the same order.
using SysVisit = std::function<void(base::ByteView topic, std::string value)>;
void describe_sys_topics(const Counters& counters, const LoadAverages& load,
                         std::chrono::seconds uptime, const SysVisit& visit);

}  // namespace pgmqtt::broker
