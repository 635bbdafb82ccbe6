// CPU and memory of processes, from /proc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loadtest/sample.h"

namespace pgmqtt::loadtest {

// The fields of /proc/PID/stat that matter here.
struct ProcStat {
    std::string command;      // as the kernel has it: 15 bytes at most
    uint64_t cpu_ticks = 0;   // user and system
    uint64_t start_time = 0;  // ticks since boot; with the pid it names a process for good
    uint64_t rss_pages = 0;
};

// None for a line that is not one of /proc/PID/stat.
std::optional<ProcStat> parse_proc_stat(std::string_view line);

// One process at one moment.
struct ProcessUsage {
    int pid = 0;
    uint64_t start_time = 0;
    uint64_t cpu_ns = 0;  // since the process began
    uint64_t rss_bytes = 0;
    std::string command;
};

// None when there is no such process (any more).
std::optional<ProcessUsage> read_process_usage(int pid);

// Adds up the CPU that a changing set of processes used since the first look.
class CpuMeter {
   public:
    // What the processes of this look have used; those that are missing have ended. A process that
    // is new since the last look counts with all that it has used, except in the first look.
    void look(const std::vector<ProcessUsage>& processes);
    double cpu_seconds() const { return static_cast<double>(used_ns_) / 1e9; }

   private:
    using Identity = std::pair<int, uint64_t>;  // pid and start time: pids come again

    std::map<Identity, uint64_t> last_ns_;
    uint64_t used_ns_ = 0;
    bool has_looked_ = false;
};

// Sums of a look, under one name.
ProcessSample sum_of(const std::string& name, const std::vector<ProcessUsage>& processes,
                     const CpuMeter& meter);

}  // namespace pgmqtt::loadtest
