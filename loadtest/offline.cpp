// offline: messages queue into persistent sessions while nobody is connected, then are fetched.
#include <algorithm>

#include "loadtest/cleanup.h"
#include "loadtest/ending.h"
#include "loadtest/event_loop.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

constexpr uint32_t kSessionExpiry = 3600;

class Offline {
   public:
    explicit Offline(const Options& options) : options_(options), table_(1), window_(options) {
        options_.persistent = true;
        auto sessions = static_cast<uint32_t>(options.sessions);
        receivers_ = sessions / options.publishers;
        for (uint32_t i = 0; i < options.publishers; ++i) {
            // No receivers while it publishes: only acknowledgements pace it.
            publishers_.push_back(
                std::make_unique<Publisher>(options_, i, 0, loop_, meter_, attendance_, ready_));
            publishers_.back()->stop_at(options.messages);
        }
        for (uint32_t i = 0; i < sessions; ++i) subscribers_.push_back(new_subscriber(i));
    }

    RunResult run() {
        return carry_out(
            new_result(options_), [this] { return window_.was_opened(); },
            [this](RunResult& result) {
                arrive();
                queue(result);
                if (!is_stopping()) drain(result);
            },
            [this](RunResult& result) { conclude(result); }, [this] { forget(); });
    }

   private:
    void arrive() {
        gather(loop_, attendance_, subscribers_.size(), 100,
               [this](size_t i) { subscribers_[i]->connect(); });
        for (auto& subscriber : subscribers_) subscriber->disconnect();
        gather(loop_, attendance_, publishers_.size(), 100,
               [this](size_t i) { publishers_[i]->connect(); });
    }

    std::unique_ptr<Subscriber> new_subscriber(uint32_t number) {
        ClientOptions client = client_options(options_, client_id(options_, "s", number));
        client.clean = false;
        client.session_expiry = kSessionExpiry;
        uint32_t heard = number % options_.publishers;
        return std::make_unique<Subscriber>(options_, client, number,
                                            std::vector<std::string>{filter_of(options_, heard)},
                                            Streams{heard, 1}, loop_, meter_, attendance_);
    }

    bool all_queued() const {
        return std::all_of(publishers_.begin(), publishers_.end(), [this](const auto& publisher) {
            return publisher->sent() == options_.messages && publisher->all_answered();
        });
    }

    // Until done(), or nothing moves for --drain seconds, or a signal comes.
    template <class Done>
    void go_on(Nanos begin, Done done) {
        Patience patience(from_seconds(options_.drain));
        Counters then = meter_.counters;
        Nanos next = begin + kSecond;
        meter_.measuring = true;
        while (!done() && attendance_.gone == 0 && !is_stopping()) {
            Nanos now = monotonic_now();
            filling_.swap(ready_);
            for (Publisher* publisher : filling_) publisher->fill(now, options_);
            filling_.clear();
            loop_.turn(std::min(next, now + kSecond / 10));
            now = monotonic_now();
            if (!patience.lasts(meter_.counters.received + meter_.counters.acknowledged)) break;
            if (now < next) continue;
            deliver(then);
            next += kSecond;
        }
        deliver(then);
        meter_.measuring = false;
    }

    void deliver(Counters& then) {
        table_.deliver(second_++, to_seconds(monotonic_now() - began_), then, meter_);
        then = meter_.counters;
    }

    void queue(RunResult& result) {
        window_.open();
        began_ = monotonic_now();
        for (auto& publisher : publishers_) publisher->fill(began_, options_);
        go_on(began_, [this] { return all_queued(); });
        window_.close();
        result.operation = "queued message";
        result.operations = meter_.counters.acknowledged * receivers_;
        result.measured_seconds = window_.seconds();
        result.warmup_seconds = 0;
        result.sent_per_second = static_cast<double>(meter_.counters.sent) / window_.seconds();
        result.acknowledged_per_second =
            static_cast<double>(meter_.counters.acknowledged) / window_.seconds();
        result.payload_megabytes_per_second =
            static_cast<double>(meter_.sent_bytes) / 1e6 / window_.seconds();
        result.figures.push_back({"queue_rate",
                                  static_cast<double>(result.operations) / window_.seconds(),
                                  "messages/s"});
        Histogram acknowledge = table_.acknowledge();
        result.histograms.push_back({"acknowledge", acknowledge});
    }

    void drain(RunResult& result) {
        drained_ = true;
        meter_.counters.expected = meter_.counters.sent * receivers_;
        BrokerSpan span(options_.broker_pid);
        for (auto& subscriber : subscribers_) subscriber->come_back();
        Nanos begin = monotonic_now();
        go_on(begin, [this] {
            const Counters& c = meter_.counters;
            return c.received - c.duplicated >= c.expected;
        });
        span.stop();
        auto received = static_cast<double>(meter_.counters.received);
        result.figures.push_back({"drain_rate", received / span.seconds(), "messages/s"});
        if (span.cpu_us() >= 0 && received > 0)
            result.figures.push_back({"drain_cpu", span.cpu_us() / received, "us per message"});
        for (Nanos end = monotonic_now() + kSecond / 5; monotonic_now() < end;) loop_.turn(end);
    }

    void conclude(RunResult& result) {
        // What nobody came to fetch is not lost.
        if (drained_)
            for (const auto& subscriber : subscribers_)
                for (const auto& publisher : publishers_)
                    if (subscriber->hears(publisher->number()))
                        subscriber->count_lost(publisher->number(), publisher->sent());
        result.counters = meter_.counters;
        result.seconds = table_.seconds();
        if (attendance_.gone != 0) end_early(result, attendance_.reasons[0]);
        result.errors = attendance_.reasons;
        window_.fill(result);
        judge(result, options_);
    }

    void forget() {
        for (auto& publisher : publishers_) publisher->disconnect();
        for (auto& subscriber : subscribers_) subscriber->disconnect();
        std::vector<std::string> ids;
        for (uint32_t i = 0; i < subscribers_.size(); ++i)
            ids.push_back(client_id(options_, "s", i));
        forget_sessions(options_, loop_, ids);
    }

    Options options_;
    EventLoop loop_;
    Meter meter_;
    SecondsTable table_;
    Window window_;
    Attendance attendance_;
    uint64_t receivers_ = 0;
    bool drained_ = false;
    size_t second_ = 0;
    Nanos began_ = 0;
    std::vector<Publisher*> ready_, filling_;
    std::vector<std::unique_ptr<Publisher>> publishers_;
    std::vector<std::unique_ptr<Subscriber>> subscribers_;
};

}  // namespace

RunResult run_offline(const Options& options) {
    if (options.qos == 0)
        throw LoadError("offline wants --qos 1 or 2: QoS 0 need not be queued for absent sessions");
    if (options.sessions == 0 || options.sessions % options.publishers != 0)
        throw LoadError(
            "--sessions must be a multiple of --publishers: session j hears publisher "
            "j mod publishers");
    return Offline(options).run();
}

}  // namespace pgmqtt::loadtest
