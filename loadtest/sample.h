// What the sampler saw at one moment. Counters only ever grow within a run, so that samples can be
// left out (one that failed, or thinning in a long run) without losing what happened in between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pgmqtt::loadtest {

// One process or a group of them ("other backends").
struct ProcessSample {
    std::string name;
    int pid = 0;             // of a single process; 0 for a group
    double cpu_seconds = 0;  // user and system, since the run began, over restarts
    uint64_t rss_bytes = 0;  // shared memory that was touched counts in each process
    uint32_t process_count = 0;
};

struct DatabaseSample {
    uint64_t commits = 0;
    uint64_t wal_records = 0;
    uint64_t wal_bytes = 0;
    std::optional<uint64_t> wal_syncs;  // not every version of PostgreSQL tells
    uint64_t table_bytes = 0;           // all of schema pgmqtt, with indexes and TOAST
    uint64_t database_bytes = 0;
    uint32_t active_backends = 0;
    std::string top_wait_event;  // "LWLock:WALWrite x3"; empty when no active backend waits
};

struct Sample {
    double t = 0;  // seconds since the sampler started
    std::vector<ProcessSample> processes;
    std::optional<DatabaseSample>
        database;  // none: there is no server to ask, or it did not answer
};

struct SampleSeries {
    std::vector<Sample> samples;
    double measured_from = 0;  // the `t` at which the measured window began
    uint64_t missed = 0;       // samples without an answer of PostgreSQL
    std::string last_error;    // why the latest of them is missing
};

}  // namespace pgmqtt::loadtest
