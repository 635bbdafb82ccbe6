// How long sinks may stand before locks: all of them together for a twentieth of the time, since
// while one waits the others do.
#pragma once

#include <algorithm>
#include <chrono>

namespace pgmqtt::sink {

class LockPatience {
   public:
    using Clock = std::chrono::steady_clock;

    // At a time.
    static constexpr std::chrono::milliseconds kLongest{25};
    static constexpr std::chrono::milliseconds kShortest{1};  // lock_timeout knows no less
    static constexpr int kShare = 20;

    std::chrono::milliseconds left(Clock::time_point now) {
        left_ = std::min<Clock::duration>(left_ + (now - counted_at_) / kShare, kLongest);
        counted_at_ = now;
        return std::max(std::chrono::floor<std::chrono::milliseconds>(left_), kShortest);
    }

    // Waiting that came to nothing; what ends with the lock is work like any other.
    void spend(Clock::duration waited) {
        left_ = std::max<Clock::duration>(left_ - waited, Clock::duration::zero());
    }

   private:
    Clock::duration left_ = kLongest;
    Clock::time_point counted_at_ = Clock::now();
};

}  // namespace pgmqtt::sink
