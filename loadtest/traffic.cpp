// closedloop, openloop, fanin, fanout, soak: publishers and subscribers for some time.
#include <atomic>
#include <barrier>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "loadtest/ending.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

// Several parties, a thread each, through the same phases at the same time.
class Run {
   public:
    explicit Run(const Options& options)
        : options_(options), table_(options.threads), gate_(options.threads), window_(options) {
        for (uint32_t i = 0; i < options.threads; ++i)
            parties_.push_back(std::make_unique<Party>(options_, i));
    }

    RunResult run() {
        std::vector<std::thread> others;
        for (uint32_t i = 1; i < options_.threads; ++i)
            others.emplace_back([this, i] { take_part(i); });
        take_part(0);
        for (std::thread& other : others) other.join();
        if (error_ && !window_.was_opened() && !is_stopping()) std::rethrow_exception(error_);
        return result();
    }

   private:
    // Everyone is here; true if all are well.
    bool meet() {
        gate_.arrive_and_wait();
        bool well = !failed_;
        gate_.arrive_and_wait();
        return well;
    }

    template <class Act>
    void attempt(Act act) {
        try {
            act();
        } catch (...) {
            std::lock_guard guard(mutex_);
            if (!error_) error_ = std::current_exception();
            failed_ = true;
        }
    }

    void take_part(uint32_t index) {
        Party& party = *parties_[index];
        attempt([&] { party.gather_subscribers(); });
        if (meet()) {
            attempt([&] { party.gather_publishers(); });
            if (index == 0) start_ = monotonic_now();
            if (meet()) load(party, index);
        }
        try {
            party.leave();
        } catch (const std::exception& error) {
            std::lock_guard guard(mutex_);
            left_behind_ = error.what();
        }
    }

    void load(Party& party, uint32_t index) {
        attempt([&] { party.run(start_, start_ + from_seconds(options_.warmup), [](Nanos) {}); });
        attempt([&] { measure(party, index); });
        attempt([&] { party.drain(); });
        party.count_lost();
    }

    void measure(Party& party, uint32_t index) {
        if (index == 0) window_.open();
        // A thread that got no CPU leaves the warmup late.
        Nanos begin = std::max(start_ + from_seconds(options_.warmup), monotonic_now());
        Counters then = party.meter.counters;
        Counters before = then;
        uint64_t bytes_before = payload_bytes(party.meter);
        party.meter.measuring = true;
        size_t second = 0;
        Nanos last = begin;
        bool all_time = party.run(begin, begin + from_seconds(options_.duration), [&](Nanos now) {
            if (now <= last) return;
            table_.deliver(second++, to_seconds(now - begin), then, party.meter);
            then = party.meter.counters;
            last = now;
            if (index == 0) report(second);
        });
        party.meter.measuring = false;
        if (index == 0) window_.close();
        std::lock_guard guard(mutex_);
        if (!all_time && !party.attendance.reasons.empty()) broken_ = party.attendance.reasons[0];
        measured_seconds_ = std::max(measured_seconds_, to_seconds(last - begin));
        sent_ += party.meter.counters.sent - before.sent;
        acknowledged_ += party.meter.counters.acknowledged - before.acknowledged;
        received_ += party.meter.counters.received - before.received;
        bytes_ += payload_bytes(party.meter) - bytes_before;
    }

    bool is_heard() const { return options_.topology != Topology::kNone; }
    uint64_t payload_bytes(const Meter& meter) const {
        return is_heard() ? meter.received_bytes : meter.sent_bytes;
    }

    void report(size_t second) const {
        if (options_.mode != "soak" || options_.quiet || second % options_.report_every != 0)
            return;
        Second row = table_.last();
        std::printf("%8zu s  sent %llu/s  received %llu/s  p50 %.3f ms  p99 %.3f ms  max %.3f ms\n",
                    second, static_cast<unsigned long long>(row.sent),
                    static_cast<unsigned long long>(row.received),
                    static_cast<double>(row.p50_ns) / 1e6, static_cast<double>(row.p99_ns) / 1e6,
                    static_cast<double>(row.max_ns) / 1e6);
        std::fflush(stdout);
    }

    void note_end(RunResult& result) const {
        if (is_stopping()) end_early(result, stop_reason());
        if (!broken_.empty()) end_early(result, broken_);
        clean_up_after(result, [this] {
            if (!left_behind_.empty()) throw LoadError(left_behind_);
        });
        try {
            if (error_) std::rethrow_exception(error_);
        } catch (const std::exception& error) {
            end_early(result, error.what());
        }
    }

    RunResult result() {
        RunResult result = new_result(options_);
        note_end(result);
        result.measured_seconds = measured_seconds_;
        uint64_t foreign = 0;
        for (const auto& party : parties_) {
            add(result.counters, party->meter.counters);
            foreign += party->meter.foreign;
            for (const std::string& reason : party->attendance.reasons)
                result.errors.push_back(reason);
        }
        result.operation = is_heard() ? "delivery" : "publish";
        result.operations = is_heard() ? received_ : options_.qos != 0 ? acknowledged_ : sent_;
        double seconds = std::max(measured_seconds_, 1e-9);
        result.sent_per_second = static_cast<double>(sent_) / seconds;
        result.acknowledged_per_second = static_cast<double>(acknowledged_) / seconds;
        result.received_per_second = static_cast<double>(received_) / seconds;
        result.payload_megabytes_per_second = static_cast<double>(bytes_) / 1e6 / seconds;
        result.seconds = table_.seconds();
        if (table_.end_to_end().count() != 0)
            result.histograms.push_back({"end to end", table_.end_to_end()});
        if (table_.acknowledge().count() != 0)
            result.histograms.push_back({"acknowledge", table_.acknowledge()});
        if (foreign != 0)
            result.figures.push_back(
                {"messages_of_other_runs", static_cast<double>(foreign), "messages"});
        window_.fill(result);
        judge(result, options_);
        return result;
    }

    Options options_;
    SecondsTable table_;
    std::barrier<> gate_;
    std::vector<std::unique_ptr<Party>> parties_;
    Window window_;
    std::atomic<bool> failed_ = false;
    Nanos start_ = 0;
    std::mutex mutex_;
    std::exception_ptr error_;
    std::string broken_;       // why nobody was left before the time was over
    std::string left_behind_;  // why traces of the run could not be removed
    double measured_seconds_ = 0;
    uint64_t sent_ = 0;
    uint64_t acknowledged_ = 0;
    uint64_t received_ = 0;
    uint64_t bytes_ = 0;
};

}  // namespace

RunResult run_traffic(const Options& options) {
    if (options.threads > 1 && options.topology == Topology::kAll)
        throw LoadError(
            "--threads spreads independent groups, and this topology is a single one; "
            "leave --threads at 1");
    if (options.threads > options.publishers)
        throw LoadError("--threads must not exceed --publishers");
    if (options.max_inflight < options.threads)
        throw LoadError("--max-inflight must be at least --threads: it is shared among them");
    return Run(options).run();
}

}  // namespace pgmqtt::loadtest
