// What one run says: a plain value that modes fill and summary, JSON and HTML read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loadtest/histogram.h"
#include "loadtest/sample.h"

namespace pgmqtt::loadtest {

// Of the whole run, from the first message to the end of the drain: these prove that nothing was
// lost.
struct Counters {
    uint64_t offered = 0;       // what the pacer or the window wanted to send
    uint64_t shed = 0;          // offered, not sent: --max-inflight was reached
    uint64_t sent = 0;          // messages written by publishers
    uint64_t acknowledged = 0;  // PUBACK or PUBCOMP without an error code
    uint64_t expected = 0;      // deliveries that `sent` must cause: sent x receivers
    uint64_t received = 0;      // deliveries, the duplicated ones included
    uint64_t duplicated = 0;    // deliveries of a message that this subscriber had before
    uint64_t lost = 0;          // expected, and never came
    uint64_t misordered = 0;    // came after a later one of the same publisher
    uint64_t corrupt = 0;       // hash or header of the payload is wrong
    uint64_t failed = 0;        // refused publishes and connects, broken connections, SQL errors
};

// The measured window only, one entry a second (the last may be shorter).
struct Second {
    double t = 0;  // end of this second, since the measured window began
    uint64_t sent = 0;
    uint64_t acknowledged = 0;
    uint64_t received = 0;
    uint64_t p50_ns = 0;  // of end-to-end latency, or of what the mode measures
    uint64_t p99_ns = 0;
    uint64_t max_ns = 0;
};

struct NamedHistogram {
    std::string name;  // "end to end", "acknowledge", "connect", "commit to delivery"
    Histogram histogram;
};

// A number that only this mode has, e.g. {"drain_rate", 812345.0, "messages/s"}.
struct Figure {
    std::string name;  // snake_case
    double value = 0;
    std::string unit;
};

struct RunResult {
    std::string label;  // --label, or the mode
    std::string mode;
    std::string started_at;                                    // UTC, ISO 8601
    std::vector<std::pair<std::string, std::string>> options;  // as in force, defaults included

    double warmup_seconds = 0;
    double measured_seconds = 0;  // rates and CPU are of this window
    // In the measured window. Operations are what `operation` names: "delivery", "publish",
    // "connect".
    std::string operation = "delivery";
    uint64_t operations = 0;
    double operations_per_second = 0;
    double sent_per_second = 0;
    double acknowledged_per_second = 0;
    double received_per_second = 0;
    // 10^6 bytes of received payload, or of sent payload where nobody receives in the window.
    double payload_megabytes_per_second = 0;

    // CPU time of the measured window; negative when no process was named.
    double broker_cpu_us_per_operation = -1;
    double broker_cpu_fraction = -1;  // of one core
    double loader_cpu_us_per_operation = -1;
    double loader_busiest_thread = -1;  // share of the window that it was on a CPU
    int broker_pid = 0;

    Counters counters;
    std::vector<NamedHistogram> histograms;  // whole measured window, merged
    std::vector<Second> seconds;
    std::vector<Figure> figures;
    std::vector<std::string> warnings;  // e.g. the loader was the ceiling
    std::vector<std::string> errors;    // why the run does not count; empty in a good run
    std::string ended_early;            // why; empty when it went on to its end
    SampleSeries samples;

    bool ok() const { return errors.empty() && ended_early.empty(); }
};

}  // namespace pgmqtt::loadtest
