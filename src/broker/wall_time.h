// Wall-clock times between processes.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/time.h"

namespace pgmqtt::broker {

inline void put_time(std::string& out, base::WallTime time) {
    base::put_u64(out, static_cast<uint64_t>(time.time_since_epoch().count()));
}

inline base::WallTime get_time(base::ByteReader& reader) {
    return base::WallTime(std::chrono::microseconds(static_cast<int64_t>(reader.u64())));
}

}  // namespace pgmqtt::broker
