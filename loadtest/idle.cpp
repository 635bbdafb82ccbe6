// idle: what connections cost that do nothing.
#include <algorithm>

#include "loadtest/cpu_clock.h"
#include "loadtest/ending.h"
#include "loadtest/event_loop.h"
#include "loadtest/guest.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

class Idle {
   public:
    explicit Idle(const Options& options) : options_(options), window_(options) {
        for (uint64_t i = 0; i < options.connections; ++i)
            guests_.push_back(std::make_unique<Guest>(
                options.client, client_options(options, client_id(options, "i", i)),
                std::vector<std::string>{topic_of(options, static_cast<uint32_t>(i), 0)},
                options.qos, loop_, meter_, attendance_));
    }

    RunResult run() {
        return carry_out(
            new_result(options_), [this] { return window_.was_opened(); },
            [this](RunResult& result) { stay(result); },
            [this](RunResult& result) { conclude(result); },
            [this] {
                for (auto& guest : guests_) guest->disconnect();
            });
    }

   private:
    std::optional<uint64_t> memory() const {
        return options_.broker_pid == 0 ? std::nullopt : process_memory(options_.broker_pid);
    }

    void stay(RunResult& result) {
        // What the first connections cost once is not theirs: buffers, tables.
        std::optional<uint64_t> before = memory();
        Nanos began = monotonic_now();
        gather(loop_, attendance_, guests_.size(), options_.concurrency,
               [this](size_t i) { guests_[i]->connect(); });
        connecting_ = to_seconds(monotonic_now() - began);
        std::optional<uint64_t> after = memory();
        put_memory(result, before, after);
        result.operations = guests_.size();
        window_.open();
        Nanos end = monotonic_now() + from_seconds(options_.duration);
        while (monotonic_now() < end && !is_stopping() && attendance_.gone < guests_.size())
            loop_.turn(end);
        window_.close();
    }

    void put_memory(RunResult& result, std::optional<uint64_t> before,
                    std::optional<uint64_t> after) const {
        if (!before || !after) {
            result.warnings.emplace_back(
                "no memory figures: give --broker-pid or --pg, and run as a user that may read "
                "/proc/PID");
            return;
        }
        double grown = static_cast<double>(*after) - static_cast<double>(*before);
        result.figures.push_back(
            {"memory_per_connection", grown / static_cast<double>(guests_.size()), "bytes"});
        if (grown <= 0)
            result.warnings.emplace_back(
                "the broker's memory did not grow: it used again what an earlier run had freed; "
                "start "
                "the broker anew");
        result.figures.push_back({"broker_memory", static_cast<double>(*after), "bytes"});
    }

    void conclude(RunResult& result) {
        result.warmup_seconds = 0;
        result.operation = "connection";
        result.measured_seconds = window_.seconds();
        result.counters = meter_.counters;
        result.errors = attendance_.reasons;
        if (attendance_.gone >= guests_.size()) end_early(result, attendance_.reasons[0]);
        window_.fill(result);
        judge(result, options_);
        // Not over the window, in which nobody connects.
        result.operations_per_second =
            connecting_ > 0 ? static_cast<double>(result.operations) / connecting_ : 0;
    }

    const Options& options_;
    EventLoop loop_;
    Meter meter_;
    Window window_;
    Attendance attendance_;
    double connecting_ = 0;
    std::vector<std::unique_ptr<Guest>> guests_;
};

}  // namespace

RunResult run_idle(const Options& options) {
    return Idle(options).run();
}

}  // namespace pgmqtt::loadtest
