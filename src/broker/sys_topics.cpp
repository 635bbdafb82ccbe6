#include "broker/sys_topics.h"

#include <cstdio>
#include <string>

#include "base/version.h"

namespace pgmqtt::broker {

namespace {

struct CounterTopic {
    const char* topic;
    uint64_t (*value)(const Counters&);
};

#define PGMQTT_VALUE(expression) [](const Counters& c) -> uint64_t { return expression; }

// Some values have two names: those that dashboards know from older versions stay.
const CounterTopic kCounterTopics[] = {
    {"clients/total", PGMQTT_VALUE(c.sessions)},
    {"clients/inactive", PGMQTT_VALUE(c.sessions - c.clients)},
    {"clients/disconnected", PGMQTT_VALUE(c.sessions - c.clients)},
    {"clients/active", PGMQTT_VALUE(c.clients)},
    {"clients/connected", PGMQTT_VALUE(c.clients)},
    {"clients/maximum", PGMQTT_VALUE(c.clients_maximum)},
    {"clients/expired", PGMQTT_VALUE(c.sessions_expired)},
    {"messages/stored", PGMQTT_VALUE(c.retained + c.queued)},
    {"messages/received", PGMQTT_VALUE(c.packets_in)},
    {"messages/sent", PGMQTT_VALUE(c.packets_out)},
    {"store/messages/count", PGMQTT_VALUE(c.retained + c.queued)},
    {"store/messages/bytes", PGMQTT_VALUE(c.retained_bytes + c.queued_bytes)},
    {"subscriptions/count", PGMQTT_VALUE(c.subscriptions)},
    {"shared_subscriptions/count", PGMQTT_VALUE(c.shared_subscriptions)},
    {"retained messages/count", PGMQTT_VALUE(c.retained)},
    {"heap/current", PGMQTT_VALUE(c.memory)},
    {"heap/maximum", PGMQTT_VALUE(c.memory_maximum)},
    {"publish/messages/dropped", PGMQTT_VALUE(dropped_messages(c))},
    {"publish/messages/received", PGMQTT_VALUE(c.publishes_in)},
    {"publish/messages/sent", PGMQTT_VALUE(c.publishes_out)},
    {"publish/bytes/received", PGMQTT_VALUE(c.publish_bytes_in)},
    {"publish/bytes/sent", PGMQTT_VALUE(c.publish_bytes_out)},
    {"bytes/received", PGMQTT_VALUE(c.bytes_in)},
    {"bytes/sent", PGMQTT_VALUE(c.bytes_out)},
};

#undef PGMQTT_VALUE

const char* const kLoadTopics[LoadAverages::kLoadCount] = {
    "messages/received", "messages/sent", "publish/dropped", "publish/received", "publish/sent",
    "bytes/received",    "bytes/sent",    "sockets",         "connections",
};

const char* const kWindowNames[LoadAverages::kWindows.size()] = {"1min", "5min", "15min"};

std::string two_decimals(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f", value);
    return text;
}

}  // namespace

bool is_sys_filter(base::ByteView filter) {
    return filter.starts_with(kSysLevel) && filter.substr(kSysLevel.size()).starts_with("/");
}

void describe_sys_topics(const Counters& counters, const LoadAverages& load,
                         std::chrono::seconds uptime, const SysVisit& visit) {
    const std::string root = std::string(kSysLevel) + "/broker/";
    visit(root + "version", std::string("pgmqtt version ") + base::kVersion);
    visit(root + "uptime", std::to_string(uptime.count()) + " seconds");
    for (const CounterTopic& known : kCounterTopics) {
        visit(root + known.topic, std::to_string(known.value(counters)));
    }
    for (size_t i = 0; i < LoadAverages::kLoadCount; ++i) {
        for (size_t window = 0; window < LoadAverages::kWindows.size(); ++window) {
            visit(root + "load/" + kLoadTopics[i] + "/" + kWindowNames[window],
                  two_decimals(load.average(static_cast<LoadAverages::Load>(i), window)));
        }
    }
}

}  // namespace pgmqtt::broker
