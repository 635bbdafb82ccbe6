#include "loadtest/sample_series.h"

#include <algorithm>
#include <map>

namespace pgmqtt::loadtest {

namespace {

// At the edges of the measured window, a sample up to this much outside still belongs to it.
constexpr double kEdgeSeconds = 0.6;

// One curve per name, in the order in which the names first appear.
template <class Number>
std::vector<Series> curves_by_process(const SampleSeries& samples, Number number) {
    std::vector<Series> curves;
    std::map<std::string, size_t> places;
    for (const Sample& sample : samples.samples) {
        for (const ProcessSample& process : sample.processes) {
            const auto [place, is_new] = places.emplace(process.name, curves.size());
            if (is_new) curves.push_back({process.name, {}});
            curves[place->second].points.push_back(
                {sample.t - samples.measured_from, number(process)});
        }
    }
    return curves;
}

}  // namespace

std::vector<Series> cpu_curves(const SampleSeries& samples) {
    auto curves = curves_by_process(samples, [](const ProcessSample& p) { return p.cpu_seconds; });
    for (Series& curve : curves) curve.points = rates_of(curve.points);
    return curves;
}

std::vector<Series> memory_curves(const SampleSeries& samples) {
    return curves_by_process(
        samples, [](const ProcessSample& p) { return static_cast<double>(p.rss_bytes); });
}

std::vector<Point> database_curve(const SampleSeries& samples, DatabaseNumber number) {
    std::vector<Point> points;
    for (const Sample& sample : samples.samples)
        if (sample.database)
            points.push_back({sample.t - samples.measured_from, number(*sample.database)});
    return points;
}

std::vector<ProcessTotal> process_totals(const SampleSeries& samples, double measured_seconds) {
    struct First {
        double t = 0;
        double cpu_seconds = 0;
        size_t place = 0;
    };
    std::map<std::string, First> firsts;
    std::vector<ProcessTotal> totals;
    const double from = samples.measured_from - kEdgeSeconds;
    const double to = samples.measured_from + measured_seconds + kEdgeSeconds;
    for (const Sample& sample : samples.samples) {
        if (sample.t < from || sample.t > to) continue;
        for (const ProcessSample& process : sample.processes) {
            const auto [first, is_new] =
                firsts.emplace(process.name, First{sample.t, process.cpu_seconds, totals.size()});
            if (is_new) totals.push_back({process.name, process.pid, 0, 0, 0, 0});
            ProcessTotal& total = totals[first->second.place];
            if (process.pid != 0 && total.pid != 0 && process.pid != total.pid) ++total.restarts;
            total.pid = process.pid;
            total.seconds = sample.t - first->second.t;
            total.cpu_seconds = process.cpu_seconds - first->second.cpu_seconds;
            total.highest_rss_bytes = std::max(total.highest_rss_bytes, process.rss_bytes);
        }
    }
    return totals;
}

std::vector<WaitEvent> top_wait_events(const SampleSeries& samples) {
    std::map<std::string, uint64_t> counts;
    for (const Sample& sample : samples.samples) {
        if (!sample.database || sample.database->top_wait_event.empty()) continue;
        const std::string& event = sample.database->top_wait_event;
        ++counts[event.substr(0, event.rfind(" x"))];
    }
    std::vector<WaitEvent> events;
    for (const auto& [name, count] : counts) events.push_back({name, count});
    std::stable_sort(events.begin(), events.end(),
                     [](const WaitEvent& a, const WaitEvent& b) { return a.samples > b.samples; });
    return events;
}

}  // namespace pgmqtt::loadtest
