#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "loadtest/report_html.h"
#include "loadtest/sample_series.h"

namespace pgmqtt::loadtest {
namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

Sample sample_at(double t, int broker_pid, double cpu_seconds) {
    Sample sample;
    sample.t = t;
    sample.processes.push_back({"pgmqtt broker", broker_pid, cpu_seconds, 50'000'000, 1});
    return sample;
}

RunResult run_of_a_minute() {
    RunResult result;
    result.label = "closedloop 10 to 10";
    result.mode = "closedloop";
    result.started_at = "2026-01-01T00:00:00Z";
    result.options = {{"payload", "64"}, {"topic", "<load&test>"}};
    result.warmup_seconds = 2;
    result.measured_seconds = 60;
    result.counters.sent = result.counters.received = result.counters.expected = 6'000'000;
    result.samples.measured_from = 2;
    for (int i = 0; i <= 62; ++i) {
        const double wave = 1 + 0.2 * (i % 7) / 7.0;
        Sample sample = sample_at(i, 100, 0.8 * i);
        sample.processes.push_back({"loader", 7, 0.6 * i, 20'000'000, 1});
        sample.processes.push_back({"other backends", 0, 0.05 * i, 90'000'000, 8});
        DatabaseSample database;
        database.commits = static_cast<uint64_t>(200 * i);
        database.wal_records = static_cast<uint64_t>(30'000 * i * wave);
        database.wal_bytes = static_cast<uint64_t>(4'000'000 * i);
        database.wal_syncs = static_cast<uint64_t>(190 * i);
        database.table_bytes = static_cast<uint64_t>(1'000'000 + 20'000 * i);
        database.database_bytes = static_cast<uint64_t>(9'000'000 + 30'000 * i);
        if (i % 3 == 0)
            database.top_wait_event = i % 2 == 0 ? "IO:WALSync x2" : "LWLock:WALWrite x1";
        sample.database = database;
        result.samples.samples.push_back(sample);
        if (i == 0 || i > 60) continue;
        Second second;
        second.t = i;
        second.sent = second.received = static_cast<uint64_t>(100'000 * wave);
        second.p50_ns = static_cast<uint64_t>(200'000 * wave);
        second.p99_ns = static_cast<uint64_t>(900'000 * wave);
        second.max_ns = static_cast<uint64_t>(i == 30 ? 80'000'000 : 3'000'000);
        result.seconds.push_back(second);
    }
    return result;
}

TEST(SampleSeriesTest, CurvesBeginWhereTheMeasuredWindowBegins) {
    SampleSeries samples;
    samples.measured_from = 1;
    samples.samples = {sample_at(0, 5, 0), sample_at(1, 5, 1), sample_at(3, 5, 2)};
    const auto curves = cpu_curves(samples);
    ASSERT_EQ(1u, curves.size());
    ASSERT_EQ(2u, curves[0].points.size());
    EXPECT_DOUBLE_EQ(0, curves[0].points[0].x);
    EXPECT_DOUBLE_EQ(1, curves[0].points[0].y);
    EXPECT_DOUBLE_EQ(0.5, curves[0].points[1].y);
}

TEST(SampleSeriesTest, TotalsAreOfTheMeasuredWindow) {
    SampleSeries samples;
    samples.measured_from = 2;
    for (int i = 0; i < 10; ++i) samples.samples.push_back(sample_at(i, i < 4 ? 5 : 6, i));
    const auto totals = process_totals(samples, 5);
    ASSERT_EQ(1u, totals.size());
    EXPECT_DOUBLE_EQ(5, totals[0].cpu_seconds);
    EXPECT_DOUBLE_EQ(5, totals[0].seconds);
    EXPECT_EQ(1, totals[0].restarts);
    EXPECT_EQ(6, totals[0].pid);
    EXPECT_TRUE(process_totals({}, 5).empty());
}

TEST(SampleSeriesTest, AMissingAnswerHasNoPoint) {
    SampleSeries samples;
    samples.samples = {sample_at(0, 5, 0), sample_at(1, 5, 1)};
    samples.samples[1].database = DatabaseSample{};
    samples.samples[1].database->top_wait_event = "IO:WALSync x12";
    const auto curve = database_curve(
        samples, [](const DatabaseSample& d) { return static_cast<double>(d.commits); });
    ASSERT_EQ(1u, curve.size());
    EXPECT_DOUBLE_EQ(1, curve[0].x);
    ASSERT_EQ(1u, top_wait_events(samples).size());
    EXPECT_EQ("IO:WALSync", top_wait_events(samples)[0].name);
}

TEST(ReportTest, HoldsVerdictPlotsAndTables) {
    const std::string page = html_of(run_of_a_minute());
    for (const char* part : {"The run counts.", "Throughput", "Latency", "pgmqtt broker", "WAL",
                             "6,000,000", "IO:WALSync", "Options in force"})
        EXPECT_TRUE(contains(page, part)) << part;
    // To look at it: PGMQTT_REPORT=/some/file.html build/unit_tests --gtest_filter='ReportTest.*'
    if (const char* path = std::getenv("PGMQTT_REPORT")) {
        EXPECT_EQ("", write_html(run_of_a_minute(), path));
    }
}

TEST(ReportTest, NeedsNothingButItself) {
    const std::string page = html_of(run_of_a_minute());
    for (const char* part : {"<script", "http:", "https:", "src=", "href=", "@import", "url("})
        EXPECT_FALSE(contains(page, part)) << part;
}

TEST(ReportTest, EscapesAllText) {
    RunResult result = run_of_a_minute();
    const std::string bad = "<img onerror=\"x\">";
    result.label = result.mode = result.started_at = result.operation = bad;
    result.errors = result.warnings = {bad};
    result.ended_early = bad;
    result.figures = {{bad, 1, bad}};
    result.histograms = {{bad, {}}};
    result.options = {{bad, bad}};
    result.samples.missed = 1;
    result.samples.last_error = bad;
    result.samples.samples.back().processes[0].name = bad;
    result.samples.samples.back().database->top_wait_event = bad;
    const std::string page = html_of(result);
    EXPECT_FALSE(contains(page, "<img"));
    EXPECT_TRUE(contains(page, "&lt;img"));
    EXPECT_TRUE(contains(page, "The run does not count."));
}

TEST(ReportTest, ARunThatEndedEarlyDoesNotCountAndSaysWhy) {
    RunResult result = run_of_a_minute();
    EXPECT_TRUE(contains(html_of(result), "The run counts."));
    result.ended_early = "interrupted by SIGINT";
    EXPECT_TRUE(contains(html_of(result), "The run does not count."));
    EXPECT_TRUE(contains(html_of(result), "It ended early: interrupted by SIGINT"));
}

TEST(ReportTest, AnEmptyRunIsStillAPage) {
    const std::string page = html_of(RunResult{});
    EXPECT_TRUE(contains(page, "no data"));
    EXPECT_TRUE(contains(page, "</html>"));
    EXPECT_FALSE(contains(page, "nan"));
}

TEST(ReportTest, AFileThatCannotBeWrittenIsSaid) {
    EXPECT_TRUE(contains(write_html(RunResult{}, "/nowhere/at/all.html"), "/nowhere/at/all.html"));
}

}  // namespace
}  // namespace pgmqtt::loadtest
