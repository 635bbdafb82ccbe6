#include "loadtest/sampler.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace pgmqtt::loadtest {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{1500};
constexpr milliseconds kPatienceAtEnds{5000};
// More than this are thinned to half, at twice the interval: about three hours at 1 Hz.
constexpr size_t kMaxSamples = 10'000;
constexpr const char* kOthers = "other backends";
constexpr const char* kWorkers = "pgmqtt ";

// A pid that PostgreSQL told may mean another process here: a server elsewhere, or in a container.
bool is_postgres(const ProcessUsage& usage) {
    return usage.command.starts_with("postgres");
}

}  // namespace

Sampler::Sampler(SamplerOptions options)
    : options_(std::move(options)), interval_(options_.interval) {
    stop_fd_ = eventfd(0, EFD_CLOEXEC);
    if (stop_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    if (!options_.conninfo.empty())
        server_ = std::make_unique<ServerWatch>(options_.conninfo, stop_fd_);
}

Sampler::~Sampler() {
    stop();
    close(stop_fd_);
}

void Sampler::start() {
    began_ = std::chrono::steady_clock::now();
    take(kPatienceAtEnds);
    thread_ = std::thread([this] { run(); });
}

void Sampler::stop() {
    if (!thread_.joinable()) return;
    uint64_t count = 1;
    // A counter of 8 bytes that nobody else writes: it takes this one.
    if (write(stop_fd_, &count, sizeof count) != sizeof count) std::abort();
    thread_.join();
    if (read(stop_fd_, &count, sizeof count) != sizeof count) std::abort();
    take(kPatienceAtEnds);
}

void Sampler::mark_measured() {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_;
    const std::lock_guard lock(mutex_);
    series_.measured_from = since.count();
}

SampleSeries Sampler::series() const {
    const std::lock_guard lock(mutex_);
    return series_;
}

void Sampler::run() {
    auto next = began_ + interval_;
    while (true) {
        const auto now = std::chrono::steady_clock::now();
        // After a slow answer the next full interval, not a burst of late ones.
        while (next <= now) next += interval_;
        if (is_stopped_within(std::chrono::ceil<milliseconds>(next - now))) return;
        take(kPatience);
    }
}

bool Sampler::is_stopped_within(milliseconds time) const {
    pollfd polled{stop_fd_, POLLIN, 0};
    return poll(&polled, 1, static_cast<int>(time.count())) > 0;
}

void Sampler::take(milliseconds patience) {
    Sample sample;
    std::optional<ServerState> state;
    if (server_) state = server_->look(patience);
    // Stopped in the middle of a question: stop() asks once more, this is no failure.
    if (server_ && !state && is_stopped_within(milliseconds(0))) return;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_;
    sample.t = since.count();
    look_at_processes(state ? &state->backends : nullptr, sample);
    if (state) sample.database = std::move(state->database);
    keep(std::move(sample), server_ && !state);
}

void Sampler::keep(Sample sample, bool missed) {
    const std::lock_guard lock(mutex_);
    auto& samples = series_.samples;
    // The last one comes when it comes: over a short time, rates would be noise. Counters lose
    // nothing.
    const std::chrono::duration<double> interval = interval_;
    if (!missed && samples.size() > 1 && sample.t - samples.back().t < interval.count() / 2)
        samples.pop_back();
    samples.push_back(std::move(sample));
    if (missed) {
        ++series_.missed;
        series_.last_error = server_->error();
    }
    if (samples.size() <= kMaxSamples) return;
    size_t kept = 0;
    for (size_t i = 0; i < samples.size(); i += 2) samples[kept++] = std::move(samples[i]);
    samples.resize(kept);
    interval_ *= 2;
}

// Without an answer of the server, its workers are still where they were last seen; what the other
// backends used meanwhile is counted with the next answer.
void Sampler::look_at_processes(const std::vector<Backend>* backends, Sample& sample) {
    for (const WatchedProcess& watched : options_.processes) {
        const auto usage = read_process_usage(watched.pid);
        if (usage) add(watched.name, {*usage}, sample);
    }
    if (backends) {
        std::vector<ProcessUsage> others;
        last_pids_.clear();
        for (const Backend& backend : *backends) {
            auto usage = read_process_usage(backend.pid);
            if (!usage || !is_postgres(*usage)) continue;
            if (backend.type.starts_with(kWorkers)) {
                last_pids_[backend.type] = backend.pid;
            } else {
                others.push_back(std::move(*usage));
            }
        }
        add(kOthers, others, sample);
    }
    for (const auto& [name, pid] : last_pids_) {
        const auto usage = read_process_usage(pid);
        if (usage && is_postgres(*usage)) add(name, {*usage}, sample);
    }
    const auto self = read_process_usage(getpid());
    if (self) add("loader", {*self}, sample);
}

void Sampler::add(const std::string& name, const std::vector<ProcessUsage>& usages,
                  Sample& sample) {
    CpuMeter& meter = meters_[name];
    meter.look(usages);
    sample.processes.push_back(sum_of(name, usages, meter));
}

}  // namespace pgmqtt::loadtest
