// What the samples of a run say: curves over time, and sums of the measured window.
#pragma once

#include <string>
#include <vector>

#include "loadtest/plot.h"
#include "loadtest/sample.h"

namespace pgmqtt::loadtest {

// Curves have their 0 where the measured window begins.
std::vector<Series> cpu_curves(const SampleSeries& samples);     // cores, one curve per process
std::vector<Series> memory_curves(const SampleSeries& samples);  // bytes, one curve per process

// One number of DatabaseSample over time; an answer without it has no point.
using DatabaseNumber = double (*)(const DatabaseSample&);
std::vector<Point> database_curve(const SampleSeries& samples, DatabaseNumber number);

// A process in the part of the run that was measured.
struct ProcessTotal {
    std::string name;
    int pid = 0;  // the last one
    double cpu_seconds = 0;
    double seconds = 0;  // the time in which it used them
    uint64_t highest_rss_bytes = 0;
    int restarts = 0;  // of a single process
};

std::vector<ProcessTotal> process_totals(const SampleSeries& samples, double measured_seconds);

struct WaitEvent {
    std::string name;
    uint64_t samples = 0;
};

// How often each wait event was the most frequent one of a sample, most frequent first.
std::vector<WaitEvent> top_wait_events(const SampleSeries& samples);

}  // namespace pgmqtt::loadtest
