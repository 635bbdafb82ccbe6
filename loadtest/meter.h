// Counting, by thread and by second.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "loadtest/clock.h"
#include "loadtest/run_result.h"

namespace pgmqtt::loadtest {

// What one thread counts. Histograms hold the current second only, and only the measured window.
struct Meter {
    Counters counters;
    uint64_t sent_bytes = 0;  // of payloads
    uint64_t received_bytes = 0;
    uint64_t foreign = 0;  // messages of another run
    bool measuring = false;
    Histogram end_to_end;
    Histogram acknowledge;

    void record_end_to_end(Nanos scheduled, Nanos at) {
        if (measuring) end_to_end.record(at > scheduled ? at - scheduled : 0);
    }
    void record_acknowledge(Nanos scheduled, Nanos at) {
        if (measuring) acknowledge.record(at > scheduled ? at - scheduled : 0);
    }
};

void add(Counters& sum, const Counters& more);

// Puts the seconds of all threads together. A second's histogram lives until every thread has
// delivered it: memory does not grow with the length of a run but for one Second each.
class SecondsTable {
   public:
    explicit SecondsTable(uint32_t threads) : threads_(threads) {}

    // `t` is the end of the second. `from` are the counters at its beginning.
    void deliver(size_t second, double t, const Counters& from, Meter& meter);

    // After all threads ended.
    std::vector<Second> seconds() const;
    const Histogram& end_to_end() const { return end_to_end_; }
    const Histogram& acknowledge() const { return acknowledge_; }

    // The whole seconds so far, for reports while it runs.
    Second last() const;

   private:
    struct Open {
        uint32_t delivered = 0;
        Histogram histogram;
    };

    mutable std::mutex mutex_;
    uint32_t threads_;
    std::vector<Second> seconds_;
    std::vector<Open> open_;  // of the seconds from first_open_ on
    size_t first_open_ = 0;
    Histogram end_to_end_;
    Histogram acknowledge_;
};

}  // namespace pgmqtt::loadtest
