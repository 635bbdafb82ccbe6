// cdc: rows are inserted through libpq, their messages looked at.
#include <algorithm>

#include "loadtest/ending.h"
#include "loadtest/event_loop.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"
#include "loadtest/row_writer.h"
#include "loadtest/test_table.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {
namespace {

class ChangeCapture {
   public:
    explicit ChangeCapture(const Options& options)
        : options_(options),
          postgres_(options.pg),
          test_table_(postgres_, options.table, "publisher bigint, sequence bigint, body bytea"),
          table_(1),
          window_(options) {
        std::string topic = filter_of(options_, 0);
        topic.resize(topic.rfind("/") + 1);
        test_table_.add_mapping("'" + topic + "' || new.publisher", "new.body", options.qos);
        for (uint32_t i = 0; i < options.subscribers; ++i) {
            subscribers_.push_back(std::make_unique<Subscriber>(
                options_, client_options(options, client_id(options, "s", i)), i,
                std::vector<std::string>{filter_of(options, std::nullopt)},
                Streams{0, options.publishers}, loop_, meter_, attendance_));
            subscribers_.back()->on_first = [this](uint32_t writer) {
                ++first_arrivals_;
                writers_[writer]->delivered();
            };
        }
    }

    RunResult run() {
        return carry_out(
            new_result(options_), [this] { return window_.was_opened(); },
            [this](RunResult& result) { capture(result); },
            [this](RunResult& result) { conclude(result); }, [this] { leave(); });
    }

   private:
    void capture(RunResult& result) {
        gather(loop_, attendance_, subscribers_.size(), 100,
               [this](size_t i) { subscribers_[i]->connect(); });
        for (uint32_t i = 0; i < options_.publishers; ++i)
            writers_.push_back(std::make_unique<RowWriter>(options_, i, options_.subscribers));
        Nanos end = monotonic_now() + from_seconds(options_.warmup);
        while (monotonic_now() < end && is_well()) loop_.turn(end);
        measure(result);
        if (!is_well() && !is_stopping()) end_early(result, first_fault());
        for (auto& writer : writers_) writer->finish();
        drain();
    }

    void leave() {
        for (auto& writer : writers_) writer->finish();
        for (auto& subscriber : subscribers_) subscriber->disconnect();
        test_table_.drop();
    }

    std::string first_fault() const {
        for (const auto& writer : writers_)
            if (!writer->is_well()) return writer->error();
        return attendance_.reasons.empty() ? "" : attendance_.reasons[0];
    }

    bool is_well() const {
        return attendance_.gone == 0 && !is_stopping() &&
               std::any_of(writers_.begin(), writers_.end(),
                           [](const auto& writer) { return writer->is_well(); });
    }

    void read_writers() {
        Counters& c = meter_.counters;
        c.sent = c.offered = c.shed = 0;
        for (const auto& writer : writers_) {
            c.sent += writer->committed();
            c.offered += writer->offered();
            c.shed += writer->shed();
        }
        c.expected = c.sent * options_.subscribers;
        // A committed row is what the table has acknowledged.
        c.acknowledged = c.sent;
    }

    void measure(RunResult& result) {
        window_.open();
        read_writers();
        Nanos begin = monotonic_now();
        Counters first = meter_.counters, then = first;
        uint64_t bytes_before = meter_.received_bytes;
        size_t second = 0;
        meter_.measuring = true;
        for (auto& writer : writers_) writer->measure(true);
        Nanos end = begin + from_seconds(options_.duration);
        for (Nanos now = begin; now < end && is_well();) {
            Nanos next = std::min(end, begin + (second + 1) * kSecond);
            loop_.turn(next);
            now = monotonic_now();
            if (now < next) continue;
            read_writers();
            table_.deliver(second++, to_seconds(now - begin), then, meter_);
            then = meter_.counters;
        }
        for (auto& writer : writers_) writer->measure(false);
        meter_.measuring = false;
        window_.close();
        read_writers();
        double seconds = std::max(window_.seconds(), 1e-9);
        result.measured_seconds = seconds;
        result.operations = meter_.counters.received - first.received;
        result.received_per_second = static_cast<double>(result.operations) / seconds;
        result.sent_per_second = static_cast<double>(meter_.counters.sent - first.sent) / seconds;
        result.acknowledged_per_second = result.sent_per_second;
        result.payload_megabytes_per_second =
            static_cast<double>(meter_.received_bytes - bytes_before) / 1e6 / seconds;
    }

    void drain() {
        read_writers();
        Patience patience(from_seconds(options_.drain));
        while (first_arrivals_ < meter_.counters.expected && attendance_.gone == 0 &&
               patience.lasts(first_arrivals_))
            loop_.turn(monotonic_now() + kSecond / 10);
        for (Nanos end = monotonic_now() + kSecond / 10; monotonic_now() < end;) loop_.turn(end);
    }

    void conclude(RunResult& result) {
        Histogram statements;
        // Fewer than asked for when the run ended before it began.
        for (uint32_t i = 0; i < writers_.size(); ++i) {
            for (auto& subscriber : subscribers_)
                subscriber->count_lost(i, writers_[i]->committed());
            statements.merge(writers_[i]->statements());
            if (writers_[i]->is_well()) continue;
            ++meter_.counters.failed;
            result.errors.push_back(writers_[i]->error());
        }
        result.counters = meter_.counters;
        result.seconds = table_.seconds();
        result.histograms.push_back({"commit to delivery", table_.end_to_end()});
        result.histograms.push_back({"commit", statements});
        result.errors.insert(result.errors.end(), attendance_.reasons.begin(),
                             attendance_.reasons.end());
        window_.fill(result);
        judge(result, options_);
    }

    const Options& options_;
    Postgres postgres_;
    TestTable test_table_;
    EventLoop loop_;
    Meter meter_;
    SecondsTable table_;
    Window window_;
    Attendance attendance_;
    uint64_t first_arrivals_ = 0;
    std::vector<std::unique_ptr<Subscriber>> subscribers_;
    std::vector<std::unique_ptr<RowWriter>> writers_;
};

}  // namespace

RunResult run_cdc(const Options& options) {
    if (options.pg.empty())
        throw LoadError("cdc needs --pg, a libpq connection string, to insert rows with");
    if (options.topics != 1 || options.subscribers == 0)
        throw LoadError("cdc wants --topics 1, and at least one of --subscribers");
    if (options.max_inflight < options.publishers)
        throw LoadError("--max-inflight must be at least --publishers: it is shared among them");
    return ChangeCapture(options).run();
}

}  // namespace pgmqtt::loadtest
