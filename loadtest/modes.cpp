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

}  // namespace

const std::vector<Mode>& all_modes() {
    static const std::vector<Mode> kModes = {
        {"closedloop", "as many messages as come back: a window per publisher, end to end", as_is,
         run_traffic},
        {"openloop", "--rate messages a second, whatever the broker does", as_is, run_traffic},
        {"fanin", "closed loop, N publishers to one subscriber", many_to_one, run_traffic},
        {"fanout", "closed loop, one publisher to N subscribers", one_to_many, run_traffic},
    };
    return kModes;
}

const Mode* find_mode(const std::string& name) {
    for (const Mode& mode : all_modes())
        if (name == mode.name) return &mode;
    return nullptr;
}

}  // namespace pgmqtt::loadtest
