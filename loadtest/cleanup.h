// What a run leaves in the broker, removed; signals do not keep it from that.
#pragma once

#include <string>
#include <vector>

#include "loadtest/event_loop.h"
#include "loadtest/options.h"

namespace pgmqtt::loadtest {

// Clients with these identifiers come once more, with clean sessions.
void forget_sessions(const Options& options, EventLoop& loop, const std::vector<std::string>& ids);

// An empty payload removes what a topic retains. `id` is the client that had published there: it
// takes its own connection over, so that nothing which is still on its way comes behind this.
void clear_retained(const Options& options, const std::string& id, EventLoop& loop,
                    const std::vector<std::string>& topics);

}  // namespace pgmqtt::loadtest
