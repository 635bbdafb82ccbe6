#include "loadtest/summary.h"

#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "loadtest/sample_series.h"

namespace pgmqtt::loadtest {
namespace {

__attribute__((format(printf, 2, 3))) void append(std::string& out, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    out += text;
}

double ms(uint64_t nanos) {
    return static_cast<double>(nanos) / 1e6;
}

// None of whole numbers and of thousands.
int digits_of(double value) {
    if (std::floor(value) == value || std::abs(value) >= 1000) return 0;
    return std::abs(value) >= 1 ? 2 : 4;
}

void append_counters(std::string& out, const Counters& c) {
    append(out, "  offered %" PRIu64 "  shed %" PRIu64 "  sent %" PRIu64 "  acknowledged %" PRIu64,
           c.offered, c.shed, c.sent, c.acknowledged);
    append(out, "  expected %" PRIu64 "  received %" PRIu64 "\n", c.expected, c.received);
    append(out,
           "  lost %" PRIu64 "  duplicated %" PRIu64 "  misordered %" PRIu64 "  corrupt %" PRIu64
           "  failed %" PRIu64 "\n",
           c.lost, c.duplicated, c.misordered, c.corrupt, c.failed);
}

void append_cpu(std::string& out, const RunResult& r) {
    const char* per = r.operation.c_str();
    if (r.broker_cpu_us_per_operation >= 0)
        append(out, "  broker %.3f us CPU per %s (%.0f %% of a core, pid %d)\n",
               r.broker_cpu_us_per_operation, per, 100 * r.broker_cpu_fraction, r.broker_pid);
    if (r.loader_cpu_us_per_operation >= 0)
        append(out, "  loader %.3f us CPU per %s (busiest thread %.0f %%)\n",
               r.loader_cpu_us_per_operation, per, 100 * r.loader_busiest_thread);
}

void append_processes(std::string& out, const RunResult& r) {
    for (const ProcessTotal& process : process_totals(r.samples, r.measured_seconds)) {
        if (process.seconds <= 0 || process.name == "loader") continue;
        append(out, "  %s: %.2f cores, at most %.1f MB resident\n", process.name.c_str(),
               process.cpu_seconds / process.seconds,
               static_cast<double>(process.highest_rss_bytes) / 1e6);
    }
}

}  // namespace

std::string summary(const RunResult& r) {
    std::string out;
    append(out, "%s (%s, %.1f s after %.1f s of warmup)\n", r.label.c_str(), r.mode.c_str(),
           r.measured_seconds, r.warmup_seconds);
    append(out, "  %.0f %s/s", r.operations_per_second, r.operation.c_str());
    append(out, "   sent %.0f/s  acknowledged %.0f/s  received %.0f/s  %.1f MB/s\n",
           r.sent_per_second, r.acknowledged_per_second, r.received_per_second,
           r.payload_megabytes_per_second);
    for (const auto& [name, histogram] : r.histograms)
        append(out, "  %s ms: p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  max %.3f  (%" PRIu64 ")\n",
               name.c_str(), ms(histogram.percentile(50)), ms(histogram.percentile(90)),
               ms(histogram.percentile(99)), ms(histogram.percentile(99.9)), ms(histogram.max()),
               histogram.count());
    append_cpu(out, r);
    append_processes(out, r);
    for (const Figure& figure : r.figures)
        append(out, "  %s %.*f %s\n", figure.name.c_str(), digits_of(figure.value), figure.value,
               figure.unit.c_str());
    append_counters(out, r.counters);
    if (!r.ended_early.empty()) out += "  ENDED EARLY: " + r.ended_early + "\n";
    for (const std::string& warning : r.warnings) out += "  WARNING: " + warning + "\n";
    for (const std::string& error : r.errors) out += "  FAILED: " + error + "\n";
    return out;
}

}  // namespace pgmqtt::loadtest
