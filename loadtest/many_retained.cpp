// cardinality --retained: how fast retained messages are stored, and sent to one who subscribes.
#include "loadtest/cardinality.h"
#include "loadtest/cleanup.h"
#include "loadtest/ending.h"
#include "loadtest/load_error.h"
#include "loadtest/party.h"
#include "loadtest/sender.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

// Retained messages come in any order: each exactly once is what can be asked.
class Collector final : public ClientEvents {
   public:
    Collector(uint32_t run, uint64_t count, Meter& meter, Attendance& attendance)
        : seen_(count), run_(run), meter_(meter), attendance_(attendance) {}

    uint64_t missing() const { return seen_.size() - distinct_; }

   private:
    void on_connected(Client&, std::string_view refusal) override {
        if (!refusal.empty()) return note(refusal);
        ++attendance_.ready;
    }
    void on_subscribed(Client&, bool granted) override {
        if (!granted) note("SUBSCRIBE was refused");
    }
    void on_delivery(Client&, const Delivery& delivery) override {
        std::optional<Stamp> stamp = read_stamp(delivery.payload);
        if (!stamp || stamp->run != run_ || stamp->sequence >= seen_.size() || !delivery.retain) {
            ++meter_.counters.corrupt;
            return;
        }
        ++meter_.counters.received;
        if (seen_[stamp->sequence]) {
            ++meter_.counters.duplicated;
            return;
        }
        seen_[stamp->sequence] = true;
        ++distinct_;
    }
    void on_closed(Client&, std::string_view why) override { note(why); }
    void note(std::string_view why) {
        ++meter_.counters.failed;
        attendance_.note("subscriber", why);
    }

    std::vector<bool> seen_;
    uint64_t distinct_ = 0;
    uint32_t run_;
    Meter& meter_;
    Attendance& attendance_;
};

class ManyRetained {
   public:
    explicit ManyRetained(const Options& options)
        : options_(options),
          window_(options),
          payload_(options.payload_size),
          sender_(options, client_id(options, "p", 0), true, loop_, meter_, attendance_),
          collector_(options.run, options.retained, meter_, attendance_) {}

    RunResult run() {
        return carry_out(
            new_result(options_), [this] { return window_.was_opened(); },
            [this](RunResult& result) {
                result.warmup_seconds = 0;
                gather(loop_, attendance_, 1, 1, [this](size_t) { sender_.connect(); });
                store(result);
                if (attendance_.gone == 0 && !is_stopping()) collect(result);
            },
            [this](RunResult& result) { conclude(result); }, [this] { clear(); });
    }

   private:
    void conclude(RunResult& result) {
        window_.fill(result);
        result.counters = meter_.counters;
        result.errors.insert(result.errors.end(), attendance_.reasons.begin(),
                             attendance_.reasons.end());
        if (attendance_.gone != 0) end_early(result, attendance_.reasons[0]);
        judge(result, options_);
    }

    base::ByteView topic(uint64_t i) {
        topic_ = topic_of(options_, static_cast<uint32_t>(i), 0);
        return topic_;
    }

    void clear() {
        sender_.disconnect();
        if (sender_.sent() == 0) return;
        std::vector<std::string> topics;
        for (uint64_t i = 0; i < sender_.sent(); ++i) topics.emplace_back(topic(i));
        clear_retained(options_, client_id(options_, "p", 0), loop_, topics);
    }

    void store(RunResult& result) {
        window_.open();
        bool all = sender_.send_all(
            loop_, options_.retained, Patience(from_seconds(options_.drain)),
            [this](uint64_t i, Nanos now) {
                Stamp stamp{.run = options_.run, .publisher = 0, .sequence = i, .scheduled = now};
                return Sender::Message{topic(i), payload_.stamp(stamp)};
            });
        window_.close();
        if (!all && !is_stopping())
            result.errors.emplace_back("not every retained message was acknowledged");
        result.operation = "retained message";
        result.operations = meter_.counters.acknowledged;
        result.measured_seconds = window_.seconds();
        result.acknowledged_per_second = static_cast<double>(result.operations) / window_.seconds();
        result.sent_per_second = static_cast<double>(sender_.sent()) / window_.seconds();
        result.payload_megabytes_per_second =
            static_cast<double>(meter_.sent_bytes) / 1e6 / window_.seconds();
        result.figures.push_back({"store_rate", result.acknowledged_per_second, "messages/s"});
    }

    void collect(RunResult& result) {
        meter_.counters.expected = options_.retained;
        auto client = new_client(options_.client, loop_,
                                 client_options(options_, client_id(options_, "s", 0)), collector_);
        gather(loop_, attendance_, 1, 1, [&](size_t) { client->connect(); });
        BrokerSpan span(options_.broker_pid);
        std::string filter = topic_of(options_, 0, 0);
        filter.replace(filter.rfind('/'), std::string::npos, "/#");
        client->subscribe({filter}, options_.qos);
        Patience patience(from_seconds(options_.drain));
        while (collector_.missing() != 0 && attendance_.gone == 0 &&
               patience.lasts(meter_.counters.received))
            loop_.turn(monotonic_now() + kSecond / 10);
        span.stop();
        auto received = static_cast<double>(meter_.counters.received);
        result.figures.push_back({"fetch_rate", received / span.seconds(), "messages/s"});
        if (span.cpu_us() >= 0 && received > 0)
            result.figures.push_back({"fetch_cpu", span.cpu_us() / received, "us per message"});
        meter_.counters.lost = collector_.missing();
        client->disconnect();
    }

    const Options& options_;
    EventLoop loop_;
    Meter meter_;
    Window window_;
    Attendance attendance_;
    Payload payload_;
    std::string topic_;
    Sender sender_;
    Collector collector_;
};

}  // namespace

RunResult run_many_retained(const Options& options) {
    if (options.qos == 0)
        throw LoadError("--retained wants --qos 1: only a PUBACK tells that a message is stored");
    return ManyRetained(options).run();
}

}  // namespace pgmqtt::loadtest
