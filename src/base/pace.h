// How often something may happen: once per interval in the long run, and at once while it has
// happened less often than that, up to a burst.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/time.h"

namespace pgmqtt::base {

class Pace {
   public:
    explicit Pace(int burst) : burst_(burst) {}

    // From when on it may happen again.
    MonoTime next() const { return next_; }

    // It happens now.
    void take(MonoTime now, std::chrono::milliseconds interval) {
        next_ = std::max(next_, now - (burst_ - 1) * interval) + interval;
    }

   private:
    int burst_;
    MonoTime next_{};
};

}  // namespace pgmqtt::base
