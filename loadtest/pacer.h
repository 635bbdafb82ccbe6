// When the messages of an open loop are due. Never waits for anybody: a late look finds all that
// have become due meanwhile, each with its own instant.
#pragma once

#include <cmath>
#include <cstdint>

#include "loadtest/clock.h"

namespace pgmqtt::loadtest {

class Pacer {
   public:
    // `rate` messages a second, the first at `start`.
    Pacer(Nanos start, double rate) : start_(start), interval_(1e9 / rate) {}

    bool is_due(Nanos now) const { return next() <= now; }
    // The instant of the message that comes next.
    Nanos next() const {
        return start_ + static_cast<Nanos>(std::llround(static_cast<double>(count_) * interval_));
    }
    Nanos take() {
        Nanos at = next();
        ++count_;
        return at;
    }
    uint64_t taken() const { return count_; }

   private:
    Nanos start_;
    double interval_;  // of nanoseconds; instants are computed from the start, errors do not add up
    uint64_t count_ = 0;
};

}  // namespace pgmqtt::loadtest
