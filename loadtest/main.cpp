// loadtest MODE [options]: see README.md.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <iostream>

#include "loadtest/cpu_clock.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/postgres.h"
#include "loadtest/report_files.h"
#include "loadtest/stop.h"
#include "loadtest/summary.h"

namespace pgmqtt::loadtest {
namespace {

// Exit codes: 0 the run counts, 1 it does not, 2 it did not take place, 128 and the number of the
// signal that ended it early.
constexpr int kDoesNotCount = 1;
constexpr int kDidNotRun = 2;
constexpr int kSignalled = 128;

void prepare_process() {
    // The pacer wakes up when it asked to, not 50 us later.
    prctl(PR_SET_TIMERSLACK, 1);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

void find_broker(Options& options) {
    if (options.pg.empty() || options.broker_pid != 0) return;
    Postgres postgres(options.pg);
    options.broker_pid = worker_pid(postgres, "pgmqtt broker");
    if (options.broker_pid == 0)
        throw LoadError(
            "--pg: no process of type 'pgmqtt broker' in pg_stat_activity; is pgmqtt in "
            "shared_preload_libraries, and is the user a member of pg_monitor?");
}

void check_processes(const Options& options) {
    auto check = [](const char* option, int pid) {
        if (pid != 0 && !process_cpu(pid))
            throw LoadError(std::string(option) + " " + std::to_string(pid) +
                            ": there is no such process, or you may not look at it");
    };
    check("--broker-pid", options.broker_pid);
    check("--peer-pid", options.peer_pid);
}

int run(const std::vector<std::string>& arguments) {
    auto workload = std::find(arguments.begin(), arguments.end(), "--");
    if (arguments.empty() || std::find(arguments.begin(), workload, "--help") != workload) {
        std::cout << help_text(arguments.empty() ? "" : arguments[0]);
        return arguments.empty() ? kDidNotRun : 0;
    }
    Options options = parse_options(arguments);
    check_report_files(options);
    check_processes(options);
    find_broker(options);
    RunResult result = find_mode(options.mode)->run(options);
    if (!options.quiet) std::cout << summary(result) << std::flush;
    write_report_files(options, result);
    if (is_stopping()) return kSignalled + stop_signal();
    return result.ok() ? 0 : kDoesNotCount;
}

}  // namespace
}  // namespace pgmqtt::loadtest

int main(int argc, char** argv) {
    using namespace pgmqtt::loadtest;
    prepare_process();
    watch_signals();
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::cerr << "loadtest: " << error.what() << "\n";
        return is_stopping() ? kSignalled + stop_signal() : kDidNotRun;
    }
}
