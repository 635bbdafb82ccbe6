// What a run leaves in the broker, removed.
#pragma once

#include <string>
#include <vector>

#include "loadtest/event_loop.h"
#include "loadtest/options.h"

namespace pgmqtt::loadtest {

// Clients with these identifiers come once more, with clean sessions.
void forget_sessions(const Options& options, EventLoop& loop, const std::vector<std::string>& ids);

// An empty payload removes what a topic retains; `id` is the client that sends them.
void clear_retained(const Options& options, const std::string& id, EventLoop& loop,
                    const std::vector<std::string>& topics);

}  // namespace pgmqtt::loadtest
