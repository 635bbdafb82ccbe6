#include "loadtest/report_html.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "loadtest/plot.h"
#include "loadtest/sample_series.h"

namespace pgmqtt::loadtest {

namespace {

using Row = std::vector<std::string>;

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--line:#8884;--faint:#777;--good:#1a7f37;--bad:#c62828;--warn:#9a6700}
body{font:14px/1.45 system-ui,sans-serif;max-width:1500px;margin:0 auto;padding:16px 24px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px}
.faint{color:var(--faint)}
.verdict{border-left:6px solid;padding:8px 14px;margin:14px 0;background:#8881}
.verdict b{font-size:16px}.verdict ul{margin:4px 0;padding-left:20px}
.good{border-color:var(--good)}.bad{border-color:var(--bad)}.warn{border-color:var(--warn)}
.tiles{display:flex;flex-wrap:wrap;gap:10px}
.tile{border:1px solid var(--line);border-radius:6px;padding:8px 14px;min-width:120px}
.tile b{display:block;font-size:20px}.tile span{color:var(--faint)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(460px,1fr));gap:14px}
figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:10px}
figcaption{font-weight:600}figcaption small{color:var(--faint);font-weight:400}
svg{width:100%;height:auto;display:block}
.grid line{stroke:var(--line)}svg text{fill:var(--faint);font:11px system-ui,sans-serif}
svg path{fill:none;stroke:var(--c);stroke-width:1.6;stroke-linejoin:round}svg circle{fill:var(--c)}
.legend{margin:4px 0 0}.legend span{margin-right:14px;white-space:nowrap}
.legend i{display:inline-block;width:12px;height:3px;background:var(--c);margin-right:5px;vertical-align:4px}
.s0{--c:#2f6fde}.s1{--c:#e8710a}.s2{--c:#1e9e5a}.s3{--c:#c5221f}.s4{--c:#8e44ad}
.s5{--c:#0097a7}.s6{--c:#b58900}.s7{--c:#7a7a7a}.s8{--c:#d81b60}.s9{--c:#5d4037}
.tables{display:flex;flex-wrap:wrap;gap:8px 40px;align-items:flex-start}
table{border-collapse:collapse}th,td{padding:2px 12px 2px 0;border-bottom:1px solid var(--line);
text-align:left;vertical-align:top;overflow-wrap:anywhere}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
)";

std::string number(const char* format, double value) {
    char digits[64];
    std::snprintf(digits, sizeof digits, format, value);
    return digits;
}

// With commas: the counters are there to be compared digit by digit.
std::string exact(uint64_t value) {
    std::string digits = std::to_string(value);
    for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
    return digits;
}

std::string duration(uint64_t nanoseconds) {
    const auto ns = static_cast<double>(nanoseconds);
    if (nanoseconds < 1'000'000) return number("%.1f us", ns / 1e3);
    if (nanoseconds < 1'000'000'000) return number("%.2f ms", ns / 1e6);
    return number("%.2f s", ns / 1e9);
}

std::string megabytes(uint64_t bytes) {
    return number("%.1f MB", static_cast<double>(bytes) / 1e6);
}

// The first column is text, the others are numbers unless they are told to be text.
std::string table(const std::string& title, const Row& heads, const std::vector<Row>& rows,
                  bool only_text = false) {
    if (rows.empty()) return {};
    const auto cells = [only_text](const char* tag, const Row& row) {
        std::string out = "<tr>";
        for (size_t i = 0; i < row.size(); ++i) {
            out += std::string("<") + tag + (i > 0 && !only_text ? " class=\"n\">" : ">") +
                   escape_html(row[i]) + "</" + tag + ">";
        }
        return out + "</tr>\n";
    };
    std::string out = "<section><h2>" + escape_html(title) + "</h2><table>\n";
    if (!heads.empty()) out += cells("th", heads);
    for (const Row& row : rows) out += cells("td", row);
    return out + "</table></section>\n";
}

std::string list_of(const std::vector<std::string>& lines) {
    std::string out = "<ul>";
    for (const std::string& line : lines) out += "<li>" + escape_html(line) + "</li>";
    return out + "</ul>";
}

std::string verdict_of(const RunResult& result) {
    const Counters& c = result.counters;
    std::string out = result.ok() ? "<div class=\"verdict good\"><b>The run counts.</b> "
                                  : "<div class=\"verdict bad\"><b>The run does not count.</b> ";
    if (!result.ended_early.empty())
        out += "<b>" + escape_html("It ended early: " + result.ended_early) + ".</b> ";
    out += escape_html(exact(c.lost) + " lost, " + exact(c.duplicated) + " duplicated, " +
                       exact(c.misordered) + " misordered, " + exact(c.corrupt) + " corrupt, " +
                       exact(c.failed) + " failed; " + exact(c.received) + " of " +
                       exact(c.expected) + " deliveries received.");
    if (!result.errors.empty()) out += list_of(result.errors);
    out += "</div>\n";
    if (!result.warnings.empty())
        out +=
            "<div class=\"verdict warn\"><b>Warnings</b>" + list_of(result.warnings) + "</div>\n";
    return out;
}

std::string tile(const std::string& value, const std::string& what) {
    return "<div class=\"tile\"><b>" + escape_html(value) + "</b><span>" + escape_html(what) +
           "</span></div>\n";
}

std::string tiles_of(const RunResult& result) {
    std::string out = "<div class=\"tiles\">\n";
    out += tile(short_number(result.operations_per_second), result.operation + " / s");
    out += tile(short_number(result.sent_per_second), "sent / s");
    if (result.acknowledged_per_second > 0)
        out += tile(short_number(result.acknowledged_per_second), "acknowledged / s");
    out += tile(short_number(result.received_per_second), "received / s");
    out += tile(number("%.2f MB/s", result.payload_megabytes_per_second), "payload received");
    if (!result.histograms.empty()) {
        const NamedHistogram& first = result.histograms.front();
        out += tile(duration(first.histogram.percentile(50)), "p50 " + first.name);
        out += tile(duration(first.histogram.percentile(99)), "p99 " + first.name);
    }
    if (result.broker_cpu_us_per_operation >= 0)
        out += tile(number("%.2f us", result.broker_cpu_us_per_operation),
                    "broker CPU per " + result.operation);
    if (result.broker_cpu_fraction >= 0)
        out += tile(number("%.0f %%", 100 * result.broker_cpu_fraction), "broker CPU of a core");
    if (result.loader_cpu_us_per_operation >= 0)
        out += tile(number("%.2f us", result.loader_cpu_us_per_operation),
                    "loader CPU per " + result.operation);
    if (result.loader_busiest_thread >= 0)
        out += tile(number("%.0f %%", 100 * result.loader_busiest_thread),
                    "busiest loader thread of a core");
    return out + "</div>\n";
}

// ---- plots ----

// Counts of one second as a rate; the last second may be a short one.
std::vector<Point> per_second(const std::vector<Second>& seconds, uint64_t Second::*count) {
    std::vector<Point> points;
    double begin = 0;
    for (const Second& second : seconds) {
        if (second.t > begin)
            points.push_back({second.t, static_cast<double>(second.*count) / (second.t - begin)});
        begin = second.t;
    }
    return points;
}

std::vector<Point> milliseconds_of(const std::vector<Second>& seconds, uint64_t Second::*time) {
    std::vector<Point> points;
    for (const Second& second : seconds)
        points.push_back({second.t, static_cast<double>(second.*time) / 1e6});
    return points;
}

Plot throughput_plot(const RunResult& result) {
    Plot plot{"Throughput", "messages/s", {}};
    plot.series.push_back({"sent", per_second(result.seconds, &Second::sent)});
    if (result.counters.acknowledged > 0)
        plot.series.push_back({"acknowledged", per_second(result.seconds, &Second::acknowledged)});
    plot.series.push_back({"received", per_second(result.seconds, &Second::received)});
    return plot;
}

Plot latency_plot(const RunResult& result) {
    Plot plot{"Latency", "ms", {}, Scale::kLogarithmic};
    plot.series.push_back({"p50", milliseconds_of(result.seconds, &Second::p50_ns)});
    plot.series.push_back({"p99", milliseconds_of(result.seconds, &Second::p99_ns)});
    plot.series.push_back({"max", milliseconds_of(result.seconds, &Second::max_ns)});
    return plot;
}

Plot memory_plot(const SampleSeries& samples) {
    Plot plot{"Resident memory", "MB", memory_curves(samples)};
    for (Series& series : plot.series)
        for (Point& point : series.points) point.y /= 1e6;
    return plot;
}

std::vector<Point> scaled(std::vector<Point> points, double factor) {
    for (Point& point : points) point.y *= factor;
    return points;
}

std::vector<Point> rate_curve(const SampleSeries& samples, DatabaseNumber of) {
    return rates_of(database_curve(samples, of));
}

std::string database_plots(const SampleSeries& samples) {
    const auto wal_bytes = [](const DatabaseSample& d) { return static_cast<double>(d.wal_bytes); };
    const auto wal_records = [](const DatabaseSample& d) {
        return static_cast<double>(d.wal_records);
    };
    const auto syncs = [](const DatabaseSample& d) {
        return d.wal_syncs ? static_cast<double>(*d.wal_syncs) : std::nan("");
    };
    const auto commits = [](const DatabaseSample& d) { return static_cast<double>(d.commits); };
    const auto tables = [](const DatabaseSample& d) { return static_cast<double>(d.table_bytes); };
    const auto database = [](const DatabaseSample& d) {
        return static_cast<double>(d.database_bytes);
    };
    const auto active = [](const DatabaseSample& d) {
        return static_cast<double>(d.active_backends);
    };
    std::string out;
    out += svg_of({"WAL", "MB/s", {{"bytes", scaled(rate_curve(samples, wal_bytes), 1e-6)}}});
    out += svg_of({"WAL records", "1/s", {{"records", rate_curve(samples, wal_records)}}});
    out += svg_of(
        {"Commits and WAL syncs",
         "1/s",
         {{"commits", rate_curve(samples, commits)}, {"syncs", rate_curve(samples, syncs)}}});
    out += svg_of({"Size",
                   "MB",
                   {{"tables of schema pgmqtt", scaled(database_curve(samples, tables), 1e-6)},
                    {"database", scaled(database_curve(samples, database), 1e-6)}}});
    out += svg_of({"Active client backends", "", {{"active", database_curve(samples, active)}}});
    return out;
}

std::string plots_of(const RunResult& result) {
    std::string out = "<div class=\"plots\">\n";
    out += svg_of(throughput_plot(result));
    out += svg_of(latency_plot(result));
    out += svg_of({"CPU", "cores", cpu_curves(result.samples)});
    out += svg_of(memory_plot(result.samples));
    const auto& samples = result.samples.samples;
    if (std::any_of(samples.begin(), samples.end(),
                    [](const Sample& sample) { return sample.database.has_value(); }))
        out += database_plots(result.samples);
    return out + "</div>\n";
}

// ---- tables ----

std::string counter_table(const Counters& c) {
    const std::pair<const char*, uint64_t> all[] = {
        {"offered", c.offered},           {"shed", c.shed},         {"sent", c.sent},
        {"acknowledged", c.acknowledged}, {"expected", c.expected}, {"received", c.received},
        {"duplicated", c.duplicated},     {"lost", c.lost},         {"misordered", c.misordered},
        {"corrupt", c.corrupt},           {"failed", c.failed}};
    std::vector<Row> rows;
    for (const auto& [name, count] : all) rows.push_back({name, exact(count)});
    return table("Counters of the whole run", {}, rows);
}

std::string latency_table(const std::vector<NamedHistogram>& histograms) {
    std::vector<Row> rows;
    for (const auto& [name, h] : histograms) {
        rows.push_back({name, exact(h.count()), duration(h.min()), duration(h.percentile(50)),
                        duration(h.percentile(90)), duration(h.percentile(99)),
                        duration(h.percentile(99.9)), duration(h.percentile(99.99)),
                        duration(h.max()), duration(static_cast<uint64_t>(h.mean()))});
    }
    return table("Latency in the measured window",
                 {"", "count", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"}, rows);
}

std::string process_table(const RunResult& result) {
    std::vector<Row> rows;
    for (const ProcessTotal& p : process_totals(result.samples, result.measured_seconds)) {
        rows.push_back({p.name, p.pid == 0 ? "" : std::to_string(p.pid),
                        number("%.2f s", p.cpu_seconds),
                        p.seconds > 0 ? number("%.2f", p.cpu_seconds / p.seconds) : "",
                        megabytes(p.highest_rss_bytes), std::to_string(p.restarts)});
    }
    return table("Processes in the measured window",
                 {"", "pid", "CPU", "cores", "highest RSS", "restarts"}, rows);
}

std::string wait_table(const SampleSeries& samples) {
    std::vector<Row> rows;
    for (const WaitEvent& event : top_wait_events(samples))
        rows.push_back({event.name, exact(event.samples)});
    return table("Top wait event of a sample", {"", "samples"}, rows);
}

std::string tables_of(const RunResult& result) {
    std::string out = "<div class=\"tables\">\n" + latency_table(result.histograms);
    out += counter_table(result.counters);
    out += process_table(result);
    std::vector<Row> rows;
    for (const Figure& figure : result.figures)
        rows.push_back({figure.name, number("%.6g ", figure.value) + figure.unit});
    out += table("Figures of this mode", {}, rows);
    out += wait_table(result.samples);
    rows.clear();
    for (const auto& [name, value] : result.options) rows.push_back({name, value});
    return out + table("Options in force", {}, rows, true) + "</div>\n";
}

}  // namespace

std::string html_of(const RunResult& result) {
    const std::string title = escape_html(result.label.empty() ? result.mode : result.label);
    std::string out =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\"><title>" +
        title + "</title><style>" + kStyle + "</style></head><body>\n<h1>" + title +
        "</h1>\n<p class=\"faint\">" +
        escape_html("pgmqtt loadtest " + result.mode + ", " + result.started_at + ", " +
                    number("%.1f s measured", result.measured_seconds) +
                    number(" after %.1f s of warm-up", result.warmup_seconds)) +
        "</p>\n";
    out += verdict_of(result);
    out += tiles_of(result);
    out += "<h2>Over time</h2><p class=\"faint\">0 is where the measured window begins.</p>\n";
    out += plots_of(result);
    out += tables_of(result);
    return out + "</body></html>\n";
}

std::string write_html(const RunResult& result, const std::string& path) {
    std::ofstream file(path, std::ios::binary);
    file << html_of(result);
    file.close();
    if (file) return {};
    return "cannot write the report to " + path + ": " + std::strerror(errno) +
           "; name another file or make its folder";
}

}  // namespace pgmqtt::loadtest
