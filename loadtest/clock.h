// CLOCK_MONOTONIC in nanoseconds: the one clock of every latency here.
#pragma once

#include <time.h>

#include <cstdint>

namespace pgmqtt::loadtest {

using Nanos = uint64_t;

inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kMillisecond = 1'000'000;

inline Nanos read_clock(clockid_t clock) {
    timespec at{};
    if (clock_gettime(clock, &at) != 0) return 0;
    return static_cast<Nanos>(at.tv_sec) * kSecond + static_cast<Nanos>(at.tv_nsec);
}

inline Nanos monotonic_now() {
    return read_clock(CLOCK_MONOTONIC);
}

inline double to_seconds(Nanos span) {
    return static_cast<double>(span) / static_cast<double>(kSecond);
}

inline Nanos from_seconds(double seconds) {
    return seconds <= 0 ? 0 : static_cast<Nanos>(seconds * static_cast<double>(kSecond));
}

}  // namespace pgmqtt::loadtest
