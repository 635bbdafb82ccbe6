#include "loadtest/meter.h"

#include <gtest/gtest.h>

namespace pgmqtt::loadtest {
namespace {

// What one thread counted in its second.
void count(Meter& meter, uint64_t messages, Nanos latency) {
    meter.measuring = true;
    meter.counters.sent += messages;
    meter.counters.received += messages;
    for (uint64_t i = 0; i < messages; ++i) meter.record_end_to_end(1000, 1000 + latency);
}

TEST(Meter, OutsideTheWindowLatencyIsNotRecorded) {
    Meter meter;
    meter.record_end_to_end(1, 2);
    meter.record_acknowledge(1, 2);
    EXPECT_EQ(meter.end_to_end.count() + meter.acknowledge.count(), 0U);
}

TEST(SecondsTable, ThreadsAreMergedNotAveraged) {
    SecondsTable table(2);
    Meter fast, slow;
    count(fast, 99, 10);
    count(slow, 1, 1000);
    table.deliver(0, 1.0, {}, fast);
    table.deliver(0, 1.1, {}, slow);
    auto seconds = table.seconds();
    ASSERT_EQ(seconds.size(), 1U);
    EXPECT_EQ(seconds[0].sent, 100U);
    EXPECT_EQ(seconds[0].p50_ns, 10U);
    EXPECT_EQ(seconds[0].p99_ns, 10U);
    EXPECT_EQ(seconds[0].max_ns, 1000U);
    EXPECT_EQ(seconds[0].t, 1.1);
    EXPECT_EQ(table.end_to_end().count(), 100U);
}

TEST(SecondsTable, AThreadMayBeSecondsAhead) {
    SecondsTable table(2);
    Meter ahead, behind;
    Counters then;
    for (size_t second = 0; second < 3; ++second) {
        count(ahead, 10, 5);
        table.deliver(second, static_cast<double>(second + 1), then, ahead);
        then = ahead.counters;
    }
    EXPECT_EQ(table.last().sent, 0U);
    count(behind, 7, 5);
    table.deliver(0, 1, {}, behind);
    EXPECT_EQ(table.last().sent, 17U);
    EXPECT_EQ(table.seconds().size(), 3U);
    EXPECT_EQ(table.seconds()[2].received, 10U);
}

TEST(SecondsTable, WithoutDeliveriesTheSecondShowsAcknowledgements) {
    SecondsTable table(1);
    Meter meter;
    meter.measuring = true;
    meter.record_acknowledge(0, 77);
    table.deliver(0, 1, {}, meter);
    EXPECT_EQ(table.seconds()[0].p50_ns, 77U);
    EXPECT_EQ(table.acknowledge().count(), 1U);
    EXPECT_EQ(table.end_to_end().count(), 0U);
}

}  // namespace
}  // namespace pgmqtt::loadtest
