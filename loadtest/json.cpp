#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "loadtest/sample_series.h"
#include "loadtest/summary.h"

namespace pgmqtt::loadtest {
namespace {

// Writes members and elements; commas are its business.
class JsonWriter {
   public:
    void begin(std::string_view key, char bracket) {
        name(key);
        out_ += bracket;
        fresh_ = true;
    }
    void end(char bracket) {
        out_ += bracket;
        fresh_ = false;
    }
    void text(std::string_view key, std::string_view value) {
        name(key);
        quote(value);
    }
    void number(std::string_view key, double value) {
        name(key);
        if (!std::isfinite(value)) {
            out_ += "null";
            return;
        }
        char digits[64];
        auto done = std::to_chars(digits, digits + sizeof digits, value);
        out_.append(digits, done.ptr);
    }
    void integer(std::string_view key, uint64_t value) {
        name(key);
        out_ += std::to_string(value);
    }
    void boolean(std::string_view key, bool value) {
        name(key);
        out_ += value ? "true" : "false";
    }
    std::string take() { return std::move(out_); }

   private:
    // An element of an array has no key.
    void name(std::string_view key) {
        if (!fresh_) out_ += ',';
        fresh_ = false;
        if (key.empty()) return;
        quote(key);
        out_ += ':';
    }
    void quote(std::string_view value) {
        out_ += '"';
        for (char c : value) {
            if (c == '"' || c == '\\') out_ += '\\';
            if (static_cast<unsigned char>(c) < 0x20) {
                char escaped[8];
                std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
                out_ += escaped;
            } else {
                out_ += c;
            }
        }
        out_ += '"';
    }

    std::string out_;
    bool fresh_ = true;
};

void put_counters(JsonWriter& json, const Counters& c) {
    json.begin("counters", '{');
    json.integer("offered", c.offered);
    json.integer("shed", c.shed);
    json.integer("sent", c.sent);
    json.integer("acknowledged", c.acknowledged);
    json.integer("expected", c.expected);
    json.integer("received", c.received);
    json.integer("duplicated", c.duplicated);
    json.integer("lost", c.lost);
    json.integer("misordered", c.misordered);
    json.integer("corrupt", c.corrupt);
    json.integer("failed", c.failed);
    json.end('}');
}

void put_histogram(JsonWriter& json, const NamedHistogram& named) {
    const Histogram& h = named.histogram;
    json.begin(named.name, '{');
    json.integer("count", h.count());
    json.number("mean_us", h.mean() / 1000);
    constexpr std::pair<const char*, double> kPercentiles[] = {
        {"p50_us", 50}, {"p90_us", 90}, {"p99_us", 99}, {"p999_us", 99.9}, {"p9999_us", 99.99}};
    for (auto [name, percent] : kPercentiles)
        json.number(name, static_cast<double>(h.percentile(percent)) / 1000);
    json.number("min_us", static_cast<double>(h.min()) / 1000);
    json.number("max_us", static_cast<double>(h.max()) / 1000);
    json.end('}');
}

void put_rates(JsonWriter& json, const RunResult& r) {
    json.number("warmup_seconds", r.warmup_seconds);
    json.number("measured_seconds", r.measured_seconds);
    json.text("operation", r.operation);
    json.integer("operations", r.operations);
    json.number("operations_per_second", r.operations_per_second);
    json.number("sent_per_second", r.sent_per_second);
    json.number("acknowledged_per_second", r.acknowledged_per_second);
    json.number("received_per_second", r.received_per_second);
    json.number("payload_megabytes_per_second", r.payload_megabytes_per_second);
    if (r.broker_cpu_us_per_operation >= 0) {
        json.number("broker_cpu_us_per_operation", r.broker_cpu_us_per_operation);
        json.number("broker_cpu_fraction", r.broker_cpu_fraction);
    }
    if (r.loader_cpu_us_per_operation >= 0) {
        json.number("loader_cpu_us_per_operation", r.loader_cpu_us_per_operation);
        json.number("loader_busiest_thread", r.loader_busiest_thread);
    }
}

void put_seconds(JsonWriter& json, const RunResult& r) {
    json.begin("seconds", '[');
    for (const Second& second : r.seconds) {
        json.begin("", '{');
        json.number("t", second.t);
        json.integer("sent", second.sent);
        json.integer("acknowledged", second.acknowledged);
        json.integer("received", second.received);
        json.number("p50_us", static_cast<double>(second.p50_ns) / 1000);
        json.number("p99_us", static_cast<double>(second.p99_ns) / 1000);
        json.number("max_us", static_cast<double>(second.max_ns) / 1000);
        json.end('}');
    }
    json.end(']');
}

// Of the measured window, as far as samples once a second can tell.
void put_processes(JsonWriter& json, const RunResult& r) {
    json.begin("processes", '{');
    for (const ProcessTotal& process : process_totals(r.samples, r.measured_seconds)) {
        json.begin(process.name, '{');
        json.number("cpu_seconds", process.cpu_seconds);
        json.number("seconds", process.seconds);
        json.integer("highest_rss_bytes", process.highest_rss_bytes);
        json.end('}');
    }
    json.end('}');
}

void put_database(JsonWriter& json, const RunResult& r) {
    const DatabaseSample *first = nullptr, *last = nullptr;
    for (const Sample& sample : r.samples.samples) {
        if (!sample.database) continue;
        if (first == nullptr) first = &*sample.database;
        last = &*sample.database;
    }
    if (first == nullptr) return;
    json.begin("database", '{');
    json.integer("commits", last->commits - first->commits);
    json.integer("wal_records", last->wal_records - first->wal_records);
    json.integer("wal_bytes", last->wal_bytes - first->wal_bytes);
    if (first->wal_syncs && last->wal_syncs)
        json.integer("wal_syncs", *last->wal_syncs - *first->wal_syncs);
    json.integer("table_bytes", last->table_bytes);
    json.integer("database_bytes", last->database_bytes);
    json.end('}');
}

void put_texts(JsonWriter& json, std::string_view key, const std::vector<std::string>& texts) {
    json.begin(key, '[');
    for (const std::string& text : texts) json.text("", text);
    json.end(']');
}

}  // namespace

std::string to_json(const RunResult& r) {
    JsonWriter json;
    json.begin("", '{');
    json.text("label", r.label);
    json.text("mode", r.mode);
    json.text("started_at", r.started_at);
    json.boolean("ok", r.ok());
    if (!r.ended_early.empty()) json.text("ended_early", r.ended_early);
    put_rates(json, r);
    put_counters(json, r.counters);
    json.begin("histograms", '{');
    for (const NamedHistogram& histogram : r.histograms) put_histogram(json, histogram);
    json.end('}');
    json.begin("figures", '{');
    for (const Figure& figure : r.figures) json.number(figure.name, figure.value);
    json.end('}');
    put_processes(json, r);
    put_database(json, r);
    put_texts(json, "warnings", r.warnings);
    put_texts(json, "errors", r.errors);
    json.begin("options", '{');
    for (const auto& [name, value] : r.options) json.text(name, value);
    json.end('}');
    put_seconds(json, r);
    json.end('}');
    return json.take();
}

}  // namespace pgmqtt::loadtest
