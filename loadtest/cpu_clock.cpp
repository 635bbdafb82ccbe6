#include "loadtest/cpu_clock.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace pgmqtt::loadtest {
namespace {

std::optional<Nanos> from_stat(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    size_t end_of_name = line.rfind(')');
    if (end_of_name == std::string::npos) return std::nullopt;
    std::istringstream fields(line.substr(end_of_name + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    uint64_t user = 0, system = 0;
    if (!(fields >> user >> system)) return std::nullopt;
    return (user + system) * (kSecond / static_cast<Nanos>(sysconf(_SC_CLK_TCK)));
}

}  // namespace

std::optional<Nanos> process_cpu(int pid) {
    clockid_t clock;
    timespec at{};
    if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &at) == 0)
        return static_cast<Nanos>(at.tv_sec) * kSecond + static_cast<Nanos>(at.tv_nsec);
    return from_stat(pid);
}

std::map<int, Nanos> own_threads_cpu() {
    std::map<int, Nanos> times;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
        std::ifstream file(entry.path() / "schedstat");
        Nanos on_cpu = 0;
        if (file >> on_cpu) times[std::stoi(entry.path().filename())] = on_cpu;
    }
    return times;
}

Nanos busiest_thread(const std::map<int, Nanos>& before, const std::map<int, Nanos>& after) {
    Nanos most = 0;
    for (auto [thread, time] : after) {
        auto then = before.find(thread);
        most = std::max(most, time - (then == before.end() ? 0 : then->second));
    }
    return most;
}

std::optional<uint64_t> process_memory(int pid) {
    std::string folder = "/proc/" + std::to_string(pid);
    std::ifstream rollup(folder + "/smaps_rollup");
    std::string line;
    uint64_t own = 0;
    while (std::getline(rollup, line))
        if (line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"))
            own += std::stoull(line.substr(line.find(':') + 1)) * 1024;
    if (own != 0) return own;
    std::ifstream statm(folder + "/statm");
    uint64_t size = 0, resident = 0;
    if (!(statm >> size >> resident)) return std::nullopt;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace pgmqtt::loadtest
