// compare: the same workload against two brokers in turn, so that what disturbs the machine
// disturbs both; medians over the rounds, and their ratios.
#include <algorithm>
#include <cstdio>

#include "loadtest/ending.h"
#include "loadtest/event_loop.h"
#include "loadtest/guest.h"
#include "loadtest/load_error.h"
#include "loadtest/meter.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"
#include "loadtest/window.h"

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

bool has_figure(const RunResult& r, const std::string& name) {
    return std::any_of(r.figures.begin(), r.figures.end(),
                       [&](const Figure& figure) { return figure.name == name; });
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

// Whether somebody answers there at all, before rounds are run against the other one.
void meet(const Side& side) {
    EventLoop loop;
    Meter meter;
    Attendance attendance;
    Guest guest(side.options.client, client_options(side.options, client_id(side.options, "c", 0)),
                {}, 0, loop, meter, attendance);
    try {
        gather(loop, attendance, 1, 1, [&](size_t) { guest.connect(); });
    } catch (const Interrupted&) {
        throw;
    } catch (const LoadError& error) {
        throw LoadError(side.name + " (" + side.options.host + ":" + side.options.port +
                        "): " + error.what());
    }
    guest.disconnect();
}

void print_round(const Side& side, uint32_t round, const RunResult& done) {
    std::printf("round %u  %-10s %12.0f %s/s", round, side.name.c_str(), rate(done),
                done.operation.c_str());
    if (cpu(done) >= 0) {
        std::printf("  %8.3f us CPU", cpu(done));
    } else {
        std::printf("  CPU not known");
    }
    if (!done.histograms.empty())
        std::printf("  p50 %.3f ms  p99 %.3f ms", percentile_ms(done, 50), percentile_ms(done, 99));
    if (!done.ended_early.empty()) std::printf("  ENDED EARLY: %s", done.ended_early.c_str());
    if (!done.errors.empty()) std::printf("  FAILED: %s", done.errors[0].c_str());
    std::printf("\n");
    std::fflush(stdout);
}

// A round that was cut short is no round.
void run_once(Side& side, uint32_t round, bool quiet, RunResult& result) {
    if (!result.ended_early.empty()) return;
    side.options.run += 1;
    try {
        RunResult done = find_mode(side.options.mode)->run(side.options);
        if (!quiet) print_round(side, round, done);
        if (!done.ended_early.empty()) {
            end_early(result,
                      is_stopping() ? done.ended_early : side.name + ": " + done.ended_early);
            for (const std::string& warning : done.warnings)
                result.warnings.push_back(side.name + ": " + warning);
            return;
        }
        side.rounds.push_back(std::move(done));
    } catch (const LoadError& error) {
        end_early(result, side.name + ": " + error.what());
    }
}

void put_medians(RunResult& result, const Side& ours, const Side& peers) {
    put_pair(result, "rate", result.operation + "/s", median_of(ours, rate),
             median_of(peers, rate));
    if (median_of(ours, cpu) >= 0 && median_of(peers, cpu) >= 0) {
        put_pair(result, "cpu", "us per " + result.operation, median_of(ours, cpu),
                 median_of(peers, cpu));
    } else {
        result.warnings.emplace_back(
            "CPU is compared only when both processes are known: give --peer-pid, and --broker-pid "
            "or --pg");
    }
    for (double percent : {50.0, 99.0}) {
        if (ours.rounds[0].histograms.empty()) break;
        auto of = [percent](const RunResult& r) { return percentile_ms(r, percent); };
        put_pair(result, percent < 99 ? "p50" : "p99", "ms", median_of(ours, of),
                 median_of(peers, of));
    }
    auto megabytes = [](const RunResult& r) { return r.payload_megabytes_per_second; };
    if (median_of(ours, megabytes) > 0)
        put_pair(result, "payload", "MB/s", median_of(ours, megabytes),
                 median_of(peers, megabytes));
    for (const Figure& figure : ours.rounds[0].figures) {
        if (!has_figure(peers.rounds[0], figure.name)) continue;
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

// The last round's series, for the plots; the rest is of all rounds.
void conclude(RunResult& result, const Options& options, const std::vector<Side>& sides) {
    std::string why = std::move(result.ended_early);
    std::vector<std::string> warnings = std::move(result.warnings);
    if (!sides[0].rounds.empty()) result = sides[0].rounds.back();
    result.ended_early = why;
    result.label = options.label;
    result.mode = "compare " + sides[0].options.mode;
    result.histograms.clear();
    result.figures.clear();
    result.errors.clear();
    result.warnings = warnings;
    result.counters = {};
    for (const RunResult& round : sides[0].rounds) add(result.counters, round.counters);
    for (const Side& side : sides) take_over(result, side);
    result.options.emplace_back("rounds", std::to_string(options.rounds));
    result.options.emplace_back("peer", options.peer_host + ":" + options.peer_port);
    if (sides[0].rounds.empty() || sides[1].rounds.empty()) {
        result.warnings.emplace_back("not one round against each: nothing is compared");
        return;
    }
    result.operations_per_second = median_of(sides[0], rate);
    result.broker_cpu_us_per_operation = median_of(sides[0], cpu);
    put_medians(result, sides[0], sides[1]);
}

}  // namespace

RunResult run_compare(const Options& options) {
    std::vector<Side> sides = sides_of(options);
    RunResult result = new_result(options);
    try {
        for (const Side& side : sides) meet(side);
    } catch (const Interrupted&) {
        end_early(result, stop_reason());
    }
    for (uint32_t round = 1; round <= options.rounds && result.ended_early.empty(); ++round) {
        // Who goes first changes: the second finds warm caches.
        run_once(sides[round % 2 == 1 ? 0 : 1], round, options.quiet, result);
        run_once(sides[round % 2 == 1 ? 1 : 0], round, options.quiet, result);
    }
    bool nothing = sides[0].rounds.empty() && sides[1].rounds.empty();
    if (nothing && !result.ended_early.empty() && !is_stopping())
        throw LoadError(result.ended_early);
    conclude(result, options, sides);
    return result;
}

}  // namespace pgmqtt::loadtest
