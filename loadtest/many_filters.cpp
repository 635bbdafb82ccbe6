// cardinality --filters: how fast subscriptions come in, and publishes through so many of them.
#include <algorithm>
#include <deque>

#include "loadtest/cardinality.h"
#include "loadtest/ending.h"
#include "loadtest/load_error.h"
#include "loadtest/party.h"
#include "loadtest/sender.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

constexpr size_t kFiltersAtOnce = 100;  // in one SUBSCRIBE

// Holds a share of the filters; what comes through them is numbered per holder.
class Holder final : ClientEvents {
   public:
    Holder(const Options& options, uint32_t number, EventLoop& loop, Meter& meter,
           Attendance& attendance)
        : run_(options.run),
          number_(number),
          qos_(options.qos),
          meter_(meter),
          attendance_(attendance) {
        client_ = new_client(options.client, loop,
                             client_options(options, client_id(options, "h", number)), *this);
    }

    void connect() { client_->connect(); }
    void disconnect() { client_->disconnect(); }
    void add_filter(std::string filter) { filters_.push_back(std::move(filter)); }
    // Counts as ready once all filters are in.
    void install() { subscribe_next(); }

    void count_lost(uint64_t sent) { meter_.counters.lost += tracker_.lost(sent); }

   private:
    void on_connected(Client&, std::string_view refusal) override {
        if (!refusal.empty()) return on_closed(*client_, refusal);
        ++attendance_.ready;
    }
    void on_subscribed(Client&, bool granted) override {
        if (!granted) return on_closed(*client_, "SUBSCRIBE was refused");
        subscribe_next();
    }
    void subscribe_next() {
        if (filters_.empty()) {
            ++attendance_.ready;
            return;
        }
        size_t count = std::min(filters_.size(), kFiltersAtOnce);
        auto end = filters_.begin() + static_cast<ptrdiff_t>(count);
        client_->subscribe({filters_.begin(), end}, qos_);
        filters_.erase(filters_.begin(), end);
    }
    void on_delivery(Client&, const Delivery& delivery) override {
        std::optional<Stamp> stamp = read_stamp(delivery.payload);
        if (!stamp || stamp->run != run_ || stamp->publisher != number_) {
            ++meter_.counters.corrupt;
            return;
        }
        ++meter_.counters.received;
        meter_.received_bytes += delivery.payload.size();
        Arrival arrival = tracker_.arrived(stamp->sequence);
        if (arrival == Arrival::kDuplicate) ++meter_.counters.duplicated;
        if (arrival == Arrival::kLate) ++meter_.counters.misordered;
        meter_.record_end_to_end(stamp->scheduled, delivery.at);
    }
    void on_closed(Client&, std::string_view why) override {
        ++meter_.counters.failed;
        attendance_.note("subscriber " + std::to_string(number_), why);
    }

    uint32_t run_;
    uint32_t number_;
    uint8_t qos_;
    Meter& meter_;
    Attendance& attendance_;
    std::deque<std::string> filters_;
    StreamTracker tracker_;
    std::unique_ptr<Client> client_;
};

class ManyFilters {
   public:
    explicit ManyFilters(const Options& options)
        : options_(options),
          table_(1),
          window_(options),
          payload_(options.payload_size),
          sender_(options, client_id(options, "p", 0), false, loop_, meter_, attendance_) {
        uint64_t count = std::min(options.connections, options.filters);
        for (uint32_t i = 0; i < count; ++i)
            holders_.push_back(std::make_unique<Holder>(options, i, loop_, meter_, attendance_));
        for (uint64_t i = 0; i < options.filters; ++i) {
            topics_.push_back(topic_of(options, static_cast<uint32_t>(i), 0) + "/value");
            // Half of them with a wildcard; each message matches exactly one.
            std::string filter = topics_.back();
            if (i % 2 == 1) filter.replace(filter.rfind('/'), std::string::npos, "/+");
            holders_[i % count]->add_filter(filter);
        }
    }

    RunResult run() {
        return carry_out(
            new_result(options_), [this] { return installed_; },
            [this](RunResult& result) {
                install(result);
                measure(result);
                drain();
            },
            [this](RunResult& result) { conclude(result); }, [this] { leave(); });
    }

   private:
    void install(RunResult& result) {
        gather(loop_, attendance_, holders_.size(), 100, [&](size_t i) { holders_[i]->connect(); });
        BrokerSpan span(options_.broker_pid);
        gather(loop_, attendance_, holders_.size(), holders_.size(),
               [&](size_t i) { holders_[i]->install(); });
        span.stop();
        installed_ = true;
        auto filters = static_cast<double>(options_.filters);
        result.figures.push_back({"subscribe_rate", filters / span.seconds(), "filters/s"});
        if (span.cpu_us() >= 0)
            result.figures.push_back({"subscribe_cpu", span.cpu_us() / filters, "us per filter"});
        gather(loop_, attendance_, 1, 1, [&](size_t) { sender_.connect(); });
    }

    void leave() {
        for (auto& holder : holders_) holder->disconnect();
        sender_.disconnect();
    }

    // How many of the first `messages` are for this holder: topics come in turn, and so do their
    // holders.
    uint64_t share(uint64_t messages, size_t holder) const {
        auto of_topics = [&](uint64_t topics) {
            return topics / holders_.size() + (holder < topics % holders_.size() ? 1 : 0);
        };
        return messages / topics_.size() * of_topics(topics_.size()) +
               of_topics(messages % topics_.size());
    }

    Sender::Message make(uint64_t i, Nanos now) {
        size_t topic = i % topics_.size();
        size_t holder = topic % holders_.size();
        Stamp stamp{.run = options_.run,
                    .publisher = static_cast<uint32_t>(holder),
                    .sequence = share(i, holder),
                    .scheduled = now};
        return {topics_[topic], payload_.stamp(stamp)};
    }

    // The window is end to end.
    uint64_t may_send_until() const {
        const Counters& c = meter_.counters;
        uint64_t end = c.received - c.duplicated + options_.end_to_end_window();
        if (options_.qos != 0)
            end = std::min(end, sender_.answered() + options_.acknowledgement_window());
        return end;
    }

    void send_for(double seconds, const std::function<void(Nanos)>& at_second) {
        Nanos begin = monotonic_now(), end = begin + from_seconds(seconds);
        Nanos next = std::min(end, begin + kSecond);
        for (Nanos now = begin; now < end && attendance_.gone == 0 && !is_stopping();) {
            sender_.send_until(may_send_until(),
                               [this](uint64_t i, Nanos at) { return make(i, at); });
            loop_.turn(next);
            now = monotonic_now();
            if (now < next) continue;
            at_second(now);
            next = std::min(end, next + kSecond);
        }
    }

    void measure(RunResult& result) {
        send_for(options_.warmup, [](Nanos) {});
        window_.open();
        Nanos begin = monotonic_now();
        Counters first = meter_.counters, then = first;
        uint64_t bytes_before = meter_.received_bytes;
        size_t second = 0;
        meter_.measuring = true;
        send_for(options_.duration, [&](Nanos now) {
            table_.deliver(second++, to_seconds(now - begin), then, meter_);
            then = meter_.counters;
        });
        meter_.measuring = false;
        window_.close();
        result.measured_seconds = window_.seconds();
        result.operation = "delivery";
        result.operations = meter_.counters.received - first.received;
        result.received_per_second = static_cast<double>(result.operations) / window_.seconds();
        result.sent_per_second =
            static_cast<double>(meter_.counters.sent - first.sent) / window_.seconds();
        result.payload_megabytes_per_second =
            static_cast<double>(meter_.received_bytes - bytes_before) / 1e6 / window_.seconds();
    }

    void conclude(RunResult& result) {
        result.counters = meter_.counters;
        result.seconds = table_.seconds();
        result.histograms.push_back({"end to end", table_.end_to_end()});
        result.errors = attendance_.reasons;
        if (attendance_.gone != 0) end_early(result, attendance_.reasons[0]);
        window_.fill(result);
        judge(result, options_);
    }

    void drain() {
        Counters& c = meter_.counters;
        c.expected = c.sent;
        Patience patience(from_seconds(options_.drain));
        auto is_open = [&] {
            return c.received < c.expected || (options_.qos != 0 && sender_.answered() < c.sent);
        };
        while (is_open() && attendance_.gone == 0 && patience.lasts(c.received + c.acknowledged))
            loop_.turn(monotonic_now() + kSecond / 10);
        for (size_t i = 0; i < holders_.size(); ++i) holders_[i]->count_lost(share(c.sent, i));
    }

    const Options& options_;
    EventLoop loop_;
    Meter meter_;
    SecondsTable table_;
    Window window_;
    Attendance attendance_;
    Payload payload_;
    bool installed_ = false;
    std::vector<std::unique_ptr<Holder>> holders_;
    std::vector<std::string> topics_;
    Sender sender_;
};

}  // namespace

RunResult run_many_filters(const Options& options) {
    return ManyFilters(options).run();
}

}  // namespace pgmqtt::loadtest
