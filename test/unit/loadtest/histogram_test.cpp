#include "loadtest/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace pgmqtt::loadtest {
namespace {

TEST(Histogram, EmptyOneSaysZero) {
    Histogram empty;
    EXPECT_EQ(empty.count(), 0U);
    EXPECT_EQ(empty.min(), 0U);
    EXPECT_EQ(empty.max(), 0U);
    EXPECT_EQ(empty.percentile(99), 0U);
    EXPECT_EQ(empty.mean(), 0.0);
}

TEST(Histogram, SmallValuesAreExact) {
    Histogram histogram;
    for (uint64_t value = 1; value <= 1000; ++value) histogram.record(value);
    EXPECT_EQ(histogram.percentile(50), 500U);
    EXPECT_EQ(histogram.percentile(99), 990U);
    EXPECT_EQ(histogram.percentile(99.9), 999U);
    EXPECT_EQ(histogram.percentile(100), 1000U);
    EXPECT_EQ(histogram.percentile(0), 1U);
    EXPECT_EQ(histogram.min(), 1U);
    EXPECT_EQ(histogram.max(), 1000U);
}

TEST(Histogram, PercentilesAreRightToAThousandth) {
    std::mt19937_64 random(7);
    std::lognormal_distribution<double> latencies(11, 2);
    Histogram histogram;
    std::vector<uint64_t> values;
    for (int i = 0; i < 100'000; ++i) {
        values.push_back(static_cast<uint64_t>(latencies(random)));
        histogram.record(values.back());
    }
    std::sort(values.begin(), values.end());
    for (double percent : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99}) {
        auto rank = static_cast<size_t>(std::ceil(percent * 1000 - 1e-6)) - 1;
        auto exact = static_cast<double>(values[rank]);
        EXPECT_NEAR(static_cast<double>(histogram.percentile(percent)), exact, exact / 1000 + 1);
    }
    EXPECT_EQ(histogram.max(), values.back());
}

TEST(Histogram, MergingIsTheSameAsRecordingAllInOne) {
    std::mt19937_64 random(11);
    Histogram all, first, second;
    for (int i = 0; i < 10'000; ++i) {
        uint64_t value = random() >> (random() % 64);
        all.record(value);
        (i % 3 == 0 ? first : second).record(value);
    }
    first.merge(second);
    EXPECT_EQ(first.count(), all.count());
    EXPECT_EQ(first.min(), all.min());
    EXPECT_EQ(first.max(), all.max());
    for (double percent = 0; percent <= 100; percent += 0.5)
        EXPECT_EQ(first.percentile(percent), all.percentile(percent)) << percent;
}

TEST(Histogram, MergingIntoAnEmptyOneAndFromAnEmptyOne) {
    Histogram one, empty;
    one.record(5'000'000);
    empty.merge(one);
    EXPECT_EQ(empty.percentile(50), one.percentile(50));
    Histogram none;
    one.merge(none);
    EXPECT_EQ(one.count(), 1U);
}

TEST(Histogram, ValuesBeyondTheRangeCountAsItsEnd) {
    Histogram histogram;
    histogram.record(UINT64_MAX);
    EXPECT_EQ(histogram.max(), Histogram::kMaxValue);
    EXPECT_EQ(histogram.percentile(50), Histogram::kMaxValue);
}

TEST(Histogram, IsAsNewAfterClear) {
    Histogram histogram;
    histogram.record(123'456'789);
    histogram.clear();
    EXPECT_EQ(histogram.count(), 0U);
    histogram.record(42);
    EXPECT_EQ(histogram.percentile(100), 42U);
    EXPECT_EQ(histogram.min(), 42U);
    size_t buckets = 0;
    histogram.for_each_bucket([&](uint64_t, uint64_t) { ++buckets; });
    EXPECT_EQ(buckets, 1U);
}

}  // namespace
}  // namespace pgmqtt::loadtest
