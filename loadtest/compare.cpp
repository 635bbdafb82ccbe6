// compare: the same workload against two brokers in turn, so that what disturbs the machine
// disturbs both; medians over the rounds, and their ratios.
#include <algorithm>
#include <cstdio>

#include "loadtest/load_error.h"
#include "loadtest/meter.h"
#include "loadtest/mode.h"

namespace pgmqtt::loadtest {
namespace {

struct Side {
    std::string name;
    Options options;
    std::vector<RunResult> rounds;
};

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Of>
double median_of(const Side& side, Of of) {
    std::vector<double> values;
    for (const RunResult& round : side.rounds) values.push_back(of(round));
    return median(std::move(values));
}

double rate(const RunResult& r) {
    return r.operations_per_second;
}
double cpu(const RunResult& r) {
    return r.broker_cpu_us_per_operation;
}

double percentile_ms(const RunResult& r, double percent) {
    return r.histograms.empty()
               ? 0
               : static_cast<double>(r.histograms[0].histogram.percentile(percent)) / 1e6;
}

double figure_of(const RunResult& r, const std::string& name) {
    for (const Figure& figure : r.figures)
        if (figure.name == name) return figure.value;
    return 0;
}

void put_pair(RunResult& result, const std::string& name, const std::string& unit, double ours,
              double peers) {
    result.figures.push_back({name, ours, unit});
    result.figures.push_back({"peer_" + name, peers, unit});
    if (peers > 0) result.figures.push_back({name + "_ratio", ours / peers, "x"});
}

std::vector<Side> sides_of(const Options& options) {
    if (options.peer_host.empty())
        throw LoadError("compare needs --peer HOST:PORT, the second broker");
    if (options.compared.empty())
        throw LoadError("compare needs -- MODE [options], the workload; see loadtest --help");
    if (options.compared[0] == "compare" || options.compared[0] == "sink" ||
        options.compared[0] == "cdc" || options.compared[0] == "soak")
        throw LoadError("compare cannot run " + options.compared[0] +
                        "; give a mode that any broker can serve");
    Options ours = parse_options(options.compared);
    if (ours.broker_pid == 0) ours.broker_pid = options.broker_pid;
    Options peers = ours;
    peers.host = options.peer_host;
    peers.port = options.peer_port;
    peers.broker_pid = options.peer_pid;
    peers.pg.clear();
    return {{"ours", ours, {}}, {options.peer_label, peers, {}}};
}

void run_once(Side& side, uint32_t round, bool quiet) {
    side.options.run += 1;
    side.rounds.push_back(find_mode(side.options.mode)->run(side.options));
    const RunResult& done = side.rounds.back();
    if (quiet) return;
    std::printf("round %u  %-10s %12.0f %s/s  %8.3f us  p50 %.3f ms  p99 %.3f ms%s%s\n", round,
                side.name.c_str(), rate(done), done.operation.c_str(), cpu(done),
                percentile_ms(done, 50), percentile_ms(done, 99),
                done.ok() ? "" : "  FAILED: ", done.ok() ? "" : done.errors[0].c_str());
    std::fflush(stdout);
}

void put_medians(RunResult& result, const Side& ours, const Side& peers) {
    put_pair(result, "rate", result.operation + "/s", median_of(ours, rate),
             median_of(peers, rate));
    if (median_of(ours, cpu) >= 0 && median_of(peers, cpu) >= 0)
        put_pair(result, "cpu", "us per " + result.operation, median_of(ours, cpu),
                 median_of(peers, cpu));
    for (double percent : {50.0, 99.0}) {
        auto of = [percent](const RunResult& r) { return percentile_ms(r, percent); };
        put_pair(result, percent < 99 ? "p50" : "p99", "ms", median_of(ours, of),
                 median_of(peers, of));
    }
    auto megabytes = [](const RunResult& r) { return r.payload_megabytes_per_second; };
    put_pair(result, "payload", "MB/s", median_of(ours, megabytes), median_of(peers, megabytes));
    for (const Figure& figure : ours.rounds[0].figures) {
        auto of = [&](const RunResult& r) { return figure_of(r, figure.name); };
        put_pair(result, figure.name, figure.unit, median_of(ours, of), median_of(peers, of));
    }
}

void take_over(RunResult& result, const Side& side) {
    Histogram merged;
    for (const RunResult& round : side.rounds) {
        if (!round.histograms.empty()) merged.merge(round.histograms[0].histogram);
        for (const std::string& error : round.errors)
            result.errors.push_back(side.name + ": " + error);
        for (const std::string& warning : round.warnings)
            result.warnings.push_back(side.name + ": " + warning);
    }
    if (merged.count() != 0) result.histograms.push_back({side.name, merged});
}

}  // namespace

RunResult run_compare(const Options& options) {
    std::vector<Side> sides = sides_of(options);
    for (uint32_t round = 1; round <= options.rounds; ++round) {
        // Who goes first changes: the second finds warm caches.
        run_once(sides[round % 2 == 1 ? 0 : 1], round, options.quiet);
        run_once(sides[round % 2 == 1 ? 1 : 0], round, options.quiet);
    }
    RunResult result = sides[0].rounds.back();  // the last round's series, for the plots
    result.label = options.label;
    result.mode = "compare " + sides[0].options.mode;
    result.histograms.clear();
    result.figures.clear();
    result.errors.clear();
    result.warnings.clear();
    result.counters = {};
    for (const RunResult& round : sides[0].rounds) add(result.counters, round.counters);
    for (const Side& side : sides) take_over(result, side);
    result.operations_per_second = median_of(sides[0], rate);
    result.broker_cpu_us_per_operation = median_of(sides[0], cpu);
    result.options.emplace_back("rounds", std::to_string(options.rounds));
    result.options.emplace_back("peer", options.peer_host + ":" + options.peer_port);
    put_medians(result, sides[0], sides[1]);
    return result;
}

}  // namespace pgmqtt::loadtest
