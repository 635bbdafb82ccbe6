// storm: connects per second, a closed loop of --concurrency connections that come and go.
#include <algorithm>

#include "loadtest/cleanup.h"
#include "loadtest/ending.h"
#include "loadtest/event_loop.h"
#include "loadtest/guest.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

class Storm {
   public:
    explicit Storm(const Options& options) : options_(options), table_(1), window_(options) {
        guests_.resize(options.concurrency);
        for (uint32_t i = 0; i < options.concurrency; ++i) guests_[i] = new_guest(i);
    }

    RunResult run() {
        return carry_out(
            new_result(options_), [this] { return window_.was_opened(); },
            [this](RunResult& result) { storm(result); },
            [this](RunResult& result) { conclude(result); }, [this] { forget(); });
    }

   private:
    void storm(RunResult& result) {
        for (auto& guest : guests_) guest->connect();
        Nanos begin = monotonic_now() + from_seconds(options_.warmup);
        while (monotonic_now() < begin && may_go_on()) turn(begin);
        window_.open();
        begin = monotonic_now();
        meter_.measuring = true;
        Counters first = meter_.counters;
        Counters then = first;
        size_t second = 0;
        Nanos end = begin + from_seconds(options_.duration);
        Nanos now = begin;
        while (now < end && may_go_on()) {
            Nanos next = std::min(end, begin + (second + 1) * kSecond);
            turn(next);
            now = monotonic_now();
            if (now < next && may_go_on()) continue;
            table_.deliver(second++, to_seconds(now - begin), then, meter_);
            then = meter_.counters;
        }
        window_.close();
        result.operations = meter_.counters.acknowledged - first.acknowledged;
    }

    std::unique_ptr<Guest> new_guest(uint64_t number) {
        ClientOptions client = client_options(options_, client_id(options_, "c", number));
        client.clean = !options_.reconnect;
        if (options_.reconnect) client.session_expiry = 300;
        std::vector<std::string> filters;
        if (options_.subscribe)
            filters.push_back(topic_of(options_, static_cast<uint32_t>(number), 0));
        return std::make_unique<Guest>(options_.client, client, filters, options_.qos, loop_,
                                       meter_, attendance_, &arrived_);
    }

    bool anybody_left() const { return attendance_.gone < guests_.size(); }
    bool may_go_on() const { return anybody_left() && !is_stopping(); }

    void turn(Nanos deadline) {
        loop_.turn(deadline);
        leaving_.swap(arrived_);
        for (Guest* guest : leaving_) {
            // CONNACK is the acknowledgement here.
            ++meter_.counters.sent;
            ++meter_.counters.offered;
            ++meter_.counters.acknowledged;
            meter_.record_acknowledge(guest->began(), guest->connected());
            guest->disconnect();
            guest->connect();
        }
        leaving_.clear();
    }

    void conclude(RunResult& result) {
        result.operation = "connect";
        result.measured_seconds = window_.seconds();
        result.counters = meter_.counters;
        result.acknowledged_per_second = static_cast<double>(result.operations) / window_.seconds();
        result.sent_per_second = result.acknowledged_per_second;
        result.seconds = table_.seconds();
        result.histograms.push_back({"connect", table_.acknowledge()});
        result.errors = attendance_.reasons;
        if (!anybody_left()) end_early(result, attendance_.reasons[0]);
        window_.fill(result);
        judge(result, options_);
    }

    void forget() {
        for (auto& guest : guests_) guest->disconnect();
        if (!options_.reconnect) return;
        std::vector<std::string> ids;
        for (uint32_t i = 0; i < guests_.size(); ++i) ids.push_back(client_id(options_, "c", i));
        forget_sessions(options_, loop_, ids);
    }

    const Options& options_;
    EventLoop loop_;
    Meter meter_;
    SecondsTable table_;
    Window window_;
    Attendance attendance_;
    std::vector<Guest*> arrived_, leaving_;
    std::vector<std::unique_ptr<Guest>> guests_;
};

}  // namespace

RunResult run_storm(const Options& options) {
    return Storm(options).run();
}

}  // namespace pgmqtt::loadtest
