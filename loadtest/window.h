// The measured window: CPU time of both sides from its beginning to its end.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "loadtest/clock.h"
#include "loadtest/options.h"
#include "loadtest/run_result.h"
#include "loadtest/sampler.h"

namespace pgmqtt::loadtest {

class Window {
   public:
    // Sampling begins here: warmup and drain are seen, too.
    explicit Window(const Options& options);

    void open();
    void close();
    bool was_opened() const { return opened_at_ != 0; }
    // CPU figures of the result, whose `operations` are set, and the samples, which end here; warns
    // when the loader was the ceiling. Without an operation, or a window, there are no such
    // figures.
    void fill(RunResult& result);
    // Never 0: rates are divided by it.
    double seconds() const { return std::max(to_seconds(closed_at_ - opened_at_), 1e-9); }

   private:
    void fill_broker(RunResult& result, double span);

    int broker_pid_;
    Sampler sampler_;
    Nanos opened_at_ = 0;
    Nanos closed_at_ = 0;
    std::optional<Nanos> broker_before_, broker_after_;
    Nanos loader_before_ = 0;
    Nanos loader_after_ = 0;
    std::map<int, Nanos> threads_before_, threads_after_;
};

// CPU time of the broker over a part of a run.
class BrokerSpan {
   public:
    explicit BrokerSpan(int pid);
    void stop();
    double seconds() const;
    // Negative without a process.
    double cpu_us() const;

   private:
    int pid_;
    Nanos began_, ended_;
    std::optional<Nanos> before_, after_;
};

// Mode, options, start; what every result begins with.
RunResult new_result(const Options& options);

// Rates per second that follow from `operations` and the window, and errors that follow from the
// counters: a run that lost, doubled, misordered or corrupted anything does not count. To be called
// behind Window::fill().
void judge(RunResult& result, const Options& options);

}  // namespace pgmqtt::loadtest
