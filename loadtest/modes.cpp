#include "loadtest/mode.h"

namespace pgmqtt::loadtest {
namespace {

void as_is(Options&) {}

void many_to_one(Options& options) {
    options.topology = Topology::kAll;
    options.publishers = 100;
}

void one_to_many(Options& options) {
    options.topology = Topology::kAll;
    options.subscribers = 100;
}

void stored(Options& options) {
    options.qos = 1;
    options.publishers = 10;
}

void one_hears_all(Options& options) {
    options.topology = Topology::kAll;
    options.topics = 100000;
    options.sessions = 10000;
    options.connections = 100;
}

void rows(Options& options) {
    options.qos = 1;
    options.publishers = 4;
}

void for_hours(Options& options) {
    options.duration = 3600;
}

}  // namespace

const std::vector<Mode>& all_modes() {
    static const std::vector<Mode> kModes = {
        {"closedloop", "as many messages as come back: a window per publisher, end to end", as_is,
         run_traffic},
        {"openloop", "--rate messages a second, whatever the broker does", as_is, run_traffic},
        {"fanin", "closed loop, N publishers to one subscriber", many_to_one, run_traffic},
        {"fanout", "closed loop, one publisher to N subscribers", one_to_many, run_traffic},
        {"soak", "a closed loop, or an open one with --rate, for hours, with reports", for_hours,
         run_traffic},
        {"offline", "messages queue into sessions without a connection, then are fetched", stored,
         run_offline},
        {"storm", "connects per second, --concurrency at a time", as_is, run_storm},
        {"idle", "--connections with a subscription each: memory per connection", as_is, run_idle},
        {"cardinality", "topics, sessions, --filters or --retained far above what is active",
         one_hears_all, run_cardinality},
        {"sink", "publish JSON through a sink, verify the rows", rows, run_sink},
        {"cdc", "insert rows of a mapped table, verify the deliveries", rows, run_cdc},
        {"compare", "rounds of one workload against two brokers in turn: ratios of medians", as_is,
         run_compare},
    };
    return kModes;
}

const Mode* find_mode(const std::string& name) {
    for (const Mode& mode : all_modes())
        if (name == mode.name) return &mode;
    return nullptr;
}

}  // namespace pgmqtt::loadtest
