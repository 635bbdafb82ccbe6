// Looks once a second at both sides of a run: the processes of the broker and of the loader, and
// what PostgreSQL counts. Has a thread of its own, so that a loader which is busy is still seen.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "loadtest/process_usage.h"
#include "loadtest/sample.h"
#include "loadtest/server_watch.h"

namespace pgmqtt::loadtest {

// A process to watch by its pid: a broker that is not PostgreSQL.
struct WatchedProcess {
    std::string name;
    int pid = 0;
};

// The process that samples is always among them, as "loader".
struct SamplerOptions {
    std::string conninfo;  // of the PostgreSQL to watch, on this machine; empty: none
    std::vector<WatchedProcess> processes;
    std::chrono::milliseconds interval{1000};
};

class Sampler {
   public:
    explicit Sampler(SamplerOptions options);
    ~Sampler();
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    // Takes the first sample before it returns: what happens from here on is counted.
    void start();
    // Takes the last one: differences between the first and the last are those of the run.
    void stop();

    // The measured window begins now.
    void mark_measured();
    SampleSeries series() const;

   private:
    void run();
    void take(std::chrono::milliseconds patience);
    void keep(Sample sample, bool missed);
    void look_at_processes(const std::vector<Backend>* backends, Sample& sample);
    void add(const std::string& name, const std::vector<ProcessUsage>& usages, Sample& sample);
    bool is_stopped_within(std::chrono::milliseconds time) const;

    const SamplerOptions options_;
    int stop_fd_ = -1;
    std::unique_ptr<ServerWatch> server_;
    std::map<std::string, CpuMeter> meters_;
    std::map<std::string, int> last_pids_;  // of the workers, while the server does not answer
    std::chrono::steady_clock::time_point began_;
    std::chrono::milliseconds interval_;
    std::thread thread_;

    mutable std::mutex mutex_;
    SampleSeries series_;
};

}  // namespace pgmqtt::loadtest
