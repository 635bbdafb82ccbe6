// How long processes and threads were on a CPU.
#pragma once

#include <map>
#include <optional>

#include "loadtest/clock.h"

namespace pgmqtt::loadtest {

// User and system time of all threads of a process, to the nanosecond where the kernel tells it.
std::optional<Nanos> process_cpu(int pid);

// Of this process, by thread id.
std::map<int, Nanos> own_threads_cpu();

// The most that one thread added between the two.
Nanos busiest_thread(const std::map<int, Nanos>& before, const std::map<int, Nanos>& after);

// Bytes that the process shares with nobody; where that cannot be read, its resident set.
// nothing.
std::optional<uint64_t> process_memory(int pid);

}  // namespace pgmqtt::loadtest
