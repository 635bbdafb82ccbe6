// loadtest MODE [options]: see README.md.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>

#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/postgres.h"
#include "loadtest/report_html.h"
#include "loadtest/summary.h"

namespace pgmqtt::loadtest {
namespace {

// Exit codes: 0 the run counts, 1 it does not, 2 it did not take place.
constexpr int kDoesNotCount = 1;
constexpr int kDidNotRun = 2;

void prepare_process() {
    // The pacer wakes up when it asked to, not 50 us later.
    prctl(PR_SET_TIMERSLACK, 1);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

void write_json(const Options& options, const RunResult& result) {
    if (options.json.empty()) return;
    std::string line = to_json(result) + "\n";
    if (options.json == "-") {
        std::cout << line << std::flush;
        return;
    }
    std::ofstream file(options.json, std::ios::app);
    if (!(file << line << std::flush))
        throw LoadError("--json " + options.json + " cannot be written; name another file");
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

void write_report(const Options& options, const RunResult& result) {
    if (options.html.empty()) return;
    if (std::string fault = write_html(result, options.html); !fault.empty())
        throw LoadError("--html " + options.html + ": " + fault + "; name another file");
}

int run(const std::vector<std::string>& arguments) {
    auto workload = std::find(arguments.begin(), arguments.end(), "--");
    if (arguments.empty() || std::find(arguments.begin(), workload, "--help") != workload) {
        std::cout << help_text(arguments.empty() ? "" : arguments[0]);
        return arguments.empty() ? kDidNotRun : 0;
    }
    Options options = parse_options(arguments);
    find_broker(options);
    RunResult result = find_mode(options.mode)->run(options);
    if (!options.quiet) std::cout << summary(result) << std::flush;
    write_json(options, result);
    write_report(options, result);
    return result.ok() ? 0 : kDoesNotCount;
}

}  // namespace
}  // namespace pgmqtt::loadtest

int main(int argc, char** argv) {
    using namespace pgmqtt::loadtest;
    prepare_process();
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::cerr << "loadtest: " << error.what() << "\n";
        return kDidNotRun;
    }
}
