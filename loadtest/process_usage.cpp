#include "loadtest/process_usage.h"

#include <time.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>

namespace pgmqtt::loadtest {

namespace {

constexpr uint64_t kNanoseconds = 1'000'000'000;

// Fields of /proc/PID/stat behind the command, counted from the state (proc(5) counts it as 3).
constexpr size_t kUserTicks = 11;
constexpr size_t kSystemTicks = 12;
constexpr size_t kStartTime = 19;
constexpr size_t kRssPages = 21;

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    size_t at = 0;
    while ((at = text.find_first_not_of(" \n", at)) != std::string_view::npos) {
        const size_t end = std::min(text.find_first_of(" \n", at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

bool read_number(std::string_view word, uint64_t& number) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc() && end == word.data() + word.size();
}

// The kernel's own sum over all threads, also those that ended, to the nanosecond; /proc/PID/stat
// has ticks of 10 ms, /proc/PID/schedstat one thread.
std::optional<uint64_t> cpu_clock_ns(int pid) {
    clockid_t clock;
    timespec now;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0)
        return std::nullopt;
    return static_cast<uint64_t>(now.tv_sec) * kNanoseconds + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

std::optional<ProcStat> parse_proc_stat(std::string_view line) {
    // The command may hold spaces and parentheses: it ends at the last one.
    const size_t open = line.find('(');
    const size_t close = line.rfind(')');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open)
        return std::nullopt;
    const auto words = words_of(line.substr(close + 1));
    if (words.size() <= kRssPages) return std::nullopt;
    ProcStat stat;
    uint64_t user = 0;
    uint64_t system = 0;
    if (!read_number(words[kUserTicks], user) || !read_number(words[kSystemTicks], system) ||
        !read_number(words[kStartTime], stat.start_time) ||
        !read_number(words[kRssPages], stat.rss_pages))
        return std::nullopt;
    stat.command = line.substr(open + 1, close - open - 1);
    stat.cpu_ticks = user + system;
    return stat;
}

std::optional<ProcessUsage> read_process_usage(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string line{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto stat = parse_proc_stat(line);
    if (!stat) return std::nullopt;
    static const auto ticks_per_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
    static const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    ProcessUsage usage;
    usage.pid = pid;
    usage.start_time = stat->start_time;
    usage.cpu_ns = cpu_clock_ns(pid).value_or(stat->cpu_ticks * (kNanoseconds / ticks_per_second));
    usage.rss_bytes = stat->rss_pages * page_bytes;
    usage.command = stat->command;
    return usage;
}

void CpuMeter::look(const std::vector<ProcessUsage>& processes) {
    std::map<Identity, uint64_t> now;
    for (const ProcessUsage& process : processes) {
        const Identity identity{process.pid, process.start_time};
        const auto last = last_ns_.find(identity);
        now[identity] = process.cpu_ns;
        if (last != last_ns_.end()) {
            if (process.cpu_ns > last->second) used_ns_ += process.cpu_ns - last->second;
        } else if (has_looked_) {
            used_ns_ += process.cpu_ns;
        }
    }
    last_ns_ = std::move(now);
    has_looked_ = true;
}

ProcessSample sum_of(const std::string& name, const std::vector<ProcessUsage>& processes,
                     const CpuMeter& meter) {
    ProcessSample sum;
    sum.name = name;
    sum.cpu_seconds = meter.cpu_seconds();
    sum.process_count = static_cast<uint32_t>(processes.size());
    if (processes.size() == 1) sum.pid = processes.front().pid;
    for (const ProcessUsage& process : processes) sum.rss_bytes += process.rss_bytes;
    return sum;
}

}  // namespace pgmqtt::loadtest
