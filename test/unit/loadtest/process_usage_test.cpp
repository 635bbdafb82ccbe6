#include "loadtest/process_usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace pgmqtt::loadtest {
namespace {

constexpr const char* kLine =
    "4321 (postgres: x) y) S 1 4321 4321 0 -1 4194304 1513 0 8 0 250 50 0 0 20 0 1 0 987654 "
    "232112128 2048 18446744073709551615 94 94 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

ProcessUsage usage(int pid, uint64_t start_time, uint64_t cpu_ns) {
    return {pid, start_time, cpu_ns, 1000, "postgres"};
}

TEST(ProcessUsageTest, ALineOfProcIsRead) {
    const auto stat = parse_proc_stat(kLine);
    ASSERT_TRUE(stat.has_value());
    EXPECT_EQ("postgres: x) y", stat->command);
    EXPECT_EQ(300u, stat->cpu_ticks);
    EXPECT_EQ(987654u, stat->start_time);
    EXPECT_EQ(2048u, stat->rss_pages);
}

TEST(ProcessUsageTest, WhatIsNoLineOfProcIsNone) {
    for (const char* line : {"", "1", "1 (x", ") 1 (", "1 (x) S 1 2 3",
                             "1 (x) S 1 1 1 0 -1 0 0 0 0 0 a b 0 0 20 0 1 0 5 6 7 8", "\n\n\n"})
        EXPECT_FALSE(parse_proc_stat(line).has_value()) << line;
}

TEST(ProcessUsageTest, ThisProcessIsSeen) {
    const auto before = read_process_usage(getpid());
    ASSERT_TRUE(before.has_value());
    EXPECT_GT(before->rss_bytes, 100'000u);
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; i < 10'000'000; ++i) sum = sum + i;
    const auto after = read_process_usage(getpid());
    ASSERT_TRUE(after.has_value());
    EXPECT_GT(after->cpu_ns, before->cpu_ns + 1'000'000);
    EXPECT_EQ(before->start_time, after->start_time);
}

TEST(ProcessUsageTest, AProcessThatIsNotThereIsNone) {
    EXPECT_FALSE(read_process_usage(0).has_value());
    EXPECT_FALSE(read_process_usage(-1).has_value());
    EXPECT_FALSE(read_process_usage(2'000'000'000).has_value());
}

TEST(CpuMeterTest, WhatWasUsedBeforeTheFirstLookDoesNotCount) {
    CpuMeter meter;
    meter.look({usage(1, 10, 5'000'000'000)});
    EXPECT_DOUBLE_EQ(0, meter.cpu_seconds());
    meter.look({usage(1, 10, 5'500'000'000)});
    EXPECT_DOUBLE_EQ(0.5, meter.cpu_seconds());
}

TEST(CpuMeterTest, ARestartedProcessCountsFromItsBeginning) {
    CpuMeter meter;
    meter.look({usage(1, 10, 5'000'000'000)});
    meter.look({usage(2, 20, 250'000'000)});
    EXPECT_DOUBLE_EQ(0.25, meter.cpu_seconds());
    // The same pid again, for another process.
    meter.look({usage(2, 30, 100'000'000)});
    EXPECT_DOUBLE_EQ(0.35, meter.cpu_seconds());
}

TEST(CpuMeterTest, NothingIsLostWhileNobodyLooks) {
    CpuMeter meter;
    meter.look({});
    meter.look({usage(1, 10, 1'000'000'000)});
    EXPECT_DOUBLE_EQ(1, meter.cpu_seconds());
    meter.look({usage(1, 10, 900'000'000)});  // never backwards
    EXPECT_DOUBLE_EQ(1, meter.cpu_seconds());
}

TEST(CpuMeterTest, AGroupIsItsSum) {
    CpuMeter meter;
    meter.look({usage(1, 10, 100), usage(2, 10, 200)});
    const std::vector<ProcessUsage> now{usage(1, 10, 1'000'000'100), usage(3, 11, 500'000'000)};
    meter.look(now);
    const ProcessSample sum = sum_of("other backends", now, meter);
    EXPECT_DOUBLE_EQ(1.5, sum.cpu_seconds);
    EXPECT_EQ(0, sum.pid);
    EXPECT_EQ(2u, sum.process_count);
    EXPECT_EQ(2000u, sum.rss_bytes);
}

}  // namespace
}  // namespace pgmqtt::loadtest
