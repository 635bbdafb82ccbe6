// Time is always handed in, never asked for: the pure floors run on a fake clock in the tests.
#pragma once

#include <chrono>

namespace pgmqtt::base {

// Timers use this one only: a jump of the wall clock changes nothing.
using MonoTime = std::chrono::steady_clock::time_point;
// For what people read and what outlives a restart. Microseconds, like timestamptz.
using WallTime = std::chrono::sys_time<std::chrono::microseconds>;

struct Now {
    MonoTime mono;
    WallTime wall;
};

inline Now read_clocks() {
    return {
        std::chrono::steady_clock::now(),
        std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now())};
}

// "No timer": later than anything that is due.
inline constexpr MonoTime kNever = MonoTime::max();

}  // namespace pgmqtt::base
