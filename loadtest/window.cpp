#include "loadtest/window.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "loadtest/cpu_clock.h"
#include "loadtest/ending.h"

namespace pgmqtt::loadtest {
namespace {

constexpr double kCeiling = 0.9;  // busier, and the loader itself may be what was measured
constexpr double kShedAtMost = 0.01;

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f %%", share < 0.1 ? 1 : 0, 100 * share);
    return text;
}

// What was shed was not measured.
void warn_of_shedding(RunResult& result, const Options& options) {
    const Counters& c = result.counters;
    double share =
        c.offered == 0 ? 0 : static_cast<double>(c.shed) / static_cast<double>(c.offered);
    if (share <= kShedAtMost) return;
    std::string why;
    if (result.loader_busiest_thread > kCeiling) {
        why = "the loader was the ceiling";
    } else if (result.broker_cpu_fraction > kCeiling) {
        why = "the broker was the ceiling";
    } else if (options.client == ClientKind::kPaho) {
        why = "paho takes so many at once and no more, --client raw goes further";
    } else {
        why =
            "the loader was not the ceiling: the broker or the machine did not keep up, or "
            "--max-inflight (" +
            std::to_string(options.max_inflight) + ") is too small";
    }
    result.warnings.push_back(percent(share) +
                              " of what was offered was shed: --rate was not reached, and latency "
                              "is of the rest; " +
                              why);
}

SamplerOptions what_to_sample(const Options& options) {
    SamplerOptions watched;
    watched.conninfo = options.pg;
    if (options.pg.empty() && options.broker_pid != 0)
        watched.processes.push_back({"broker", options.broker_pid});
    return watched;
}

}  // namespace

Window::Window(const Options& options)
    : broker_pid_(options.broker_pid), sampler_(what_to_sample(options)) {
    sampler_.start();
}

void Window::open() {
    sampler_.mark_measured();
    if (broker_pid_ != 0) broker_before_ = process_cpu(broker_pid_);
    threads_before_ = own_threads_cpu();
    loader_before_ = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    opened_at_ = monotonic_now();
}

void Window::close() {
    closed_at_ = monotonic_now();
    loader_after_ = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    if (broker_pid_ != 0) broker_after_ = process_cpu(broker_pid_);
    threads_after_ = own_threads_cpu();
}

void Window::fill(RunResult& result) {
    sampler_.stop();
    result.samples = sampler_.series();
    if (result.samples.missed > 0)
        result.warnings.push_back(
            std::to_string(result.samples.missed) +
            " samples without an answer of PostgreSQL; the last: " + result.samples.last_error);
    result.broker_pid = broker_pid_;
    if (was_opened() && closed_at_ == 0) close();
    if (result.operations == 0 || closed_at_ <= opened_at_) return;
    auto span = static_cast<double>(closed_at_ - opened_at_);
    fill_broker(result, span);
    result.loader_cpu_us_per_operation = static_cast<double>(loader_after_ - loader_before_) /
                                         1000 / static_cast<double>(result.operations);
    result.loader_busiest_thread =
        static_cast<double>(busiest_thread(threads_before_, threads_after_)) / span;
    if (result.loader_busiest_thread > kCeiling)
        result.warnings.push_back(
            "the loader was the ceiling: its busiest thread was on a CPU " +
            percent(result.loader_busiest_thread) +
            " of the time; use --client raw, --threads, larger --window, or fewer clients");
}

void Window::fill_broker(RunResult& result, double span) {
    if (broker_pid_ == 0) return;
    if (!broker_before_ || !broker_after_) {
        result.errors.push_back("process " + std::to_string(broker_pid_) +
                                " ended, or cannot be looked at; check --broker-pid");
        return;
    }
    auto used = static_cast<double>(*broker_after_ - *broker_before_);
    result.broker_cpu_us_per_operation = used / 1000 / static_cast<double>(result.operations);
    result.broker_cpu_fraction = used / span;
}

BrokerSpan::BrokerSpan(int pid) : pid_(pid), began_(monotonic_now()), ended_(began_) {
    if (pid_ != 0) before_ = process_cpu(pid_);
}

void BrokerSpan::stop() {
    ended_ = monotonic_now();
    if (pid_ != 0) after_ = process_cpu(pid_);
}

double BrokerSpan::seconds() const {
    return std::max(to_seconds(ended_ - began_), 1e-9);
}

double BrokerSpan::cpu_us() const {
    return before_ && after_ ? static_cast<double>(*after_ - *before_) / 1000 : -1;
}

RunResult new_result(const Options& options) {
    RunResult result;
    result.label = options.label;
    result.mode = options.mode;
    result.options = describe(options);
    result.warmup_seconds = options.warmup;
    char text[32];
    time_t now = time(nullptr);
    tm parts{};
    gmtime_r(&now, &parts);
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    result.started_at = text;
    return result;
}

void judge(RunResult& result, const Options& options) {
    // No time is not a time of 0.
    std::erase_if(result.histograms,
                  [](const NamedHistogram& named) { return named.histogram.count() == 0; });
    const Counters& c = result.counters;
    double seconds = std::max(result.measured_seconds, 1e-9);
    result.operations_per_second = static_cast<double>(result.operations) / seconds;
    auto complain = [&](uint64_t count, const char* what) {
        if (count != 0) result.errors.push_back(std::to_string(count) + " " + what);
    };
    if (is_stopping()) {
        end_early(result, stop_reason());
        // The drain was short.
        if (c.lost != 0)
            result.warnings.push_back(std::to_string(c.lost) +
                                      " messages had not come when the run was interrupted");
    } else {
        complain(c.lost,
                 "messages were lost; was a queue limit of the broker reached? pgmqtt.stat_broker "
                 "counts what "
                 "it dropped");
    }
    // QoS 1 may repeat, but not on a connection that stands.
    complain(c.duplicated, "messages came twice");
    complain(c.misordered, "messages came out of order");
    complain(c.corrupt, "messages were not what was sent");
    complain(c.failed, "operations failed; see the reasons and the broker's log");
    warn_of_shedding(result, options);
    if (!result.ended_early.empty()) return;
    uint64_t unanswered = c.sent > c.acknowledged ? c.sent - c.acknowledged : 0;
    if (options.qos != 0 && c.failed == 0)
        complain(unanswered, "publishes were never acknowledged");
    if (result.operations == 0) result.errors.emplace_back("nothing happened in the window");
}

}  // namespace pgmqtt::loadtest
