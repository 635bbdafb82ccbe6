// The moving averages behind $SYS/broker/load: what mosquitto would say of the same traffic.
#include "broker/load_averages.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pgmqtt::broker {
namespace {

using namespace std::chrono_literals;

constexpr size_t kOneMinute = 0;
constexpr size_t kFiveMinutes = 1;
constexpr size_t kFifteenMinutes = 2;

class LoadAveragesTest : public ::testing::Test {
   protected:
    LoadAveragesTest() { load_.sample(now_, counters_); }

    // So many publishes in this second, each an input of its own.
    void second(uint64_t publishes) {
        now_ += 1s;
        for (uint64_t i = 0; i < publishes; ++i) {
            if (load_.due(now_)) load_.sample(now_, counters_);
            ++counters_.publishes_in;
        }
    }
    double received(size_t window) {
        load_.sample(now_, counters_);
        return load_.average(LoadAverages::kPublishReceived, window);
    }

    base::MonoTime now_{1h};
    Counters counters_;
    LoadAverages load_;
};

TEST_F(LoadAveragesTest, NothingIsZero) {
    now_ += 3h;
    EXPECT_EQ(received(kOneMinute), 0);
}

TEST_F(LoadAveragesTest, WhatWasBeforeTheFirstSampleDoesNotCount) {
    Counters old;
    old.publishes_in = 1000000;
    LoadAverages load;
    load.sample(now_, old);
    load.sample(now_ + 10s, old);
    EXPECT_EQ(load.average(LoadAverages::kPublishReceived, kOneMinute), 0);
}

TEST_F(LoadAveragesTest, ASteadyRateIsReachedByEachWindowInItsTime) {
    for (int i = 0; i < 60; ++i) second(5);
    EXPECT_NEAR(received(kOneMinute), 300 * (1 - std::exp(-1)), 5);
    EXPECT_NEAR(received(kFiveMinutes), 300 * (1 - std::exp(-0.2)), 5);
    EXPECT_NEAR(received(kFifteenMinutes), 300 * (1 - std::exp(-1.0 / 15)), 5);
    for (int i = 0; i < 3600; ++i) second(5);
    EXPECT_NEAR(received(kOneMinute), 300, 1);
    EXPECT_NEAR(received(kFiveMinutes), 300, 1);
    EXPECT_NEAR(received(kFifteenMinutes), 300, 6);
}

// Nobody looked at the clock meanwhile.
TEST_F(LoadAveragesTest, AnHourOfSilenceIsAnHourOfZeros) {
    for (int i = 0; i < 5; ++i) second(1000);
    now_ += 1h;
    EXPECT_LT(received(kOneMinute), 0.01);
    EXPECT_LT(received(kFiveMinutes), 0.1);
    EXPECT_GT(received(kFifteenMinutes), 1);
}

TEST_F(LoadAveragesTest, SilenceFallsByEWithEachWindow) {
    for (int i = 0; i < 10; ++i) second(100);
    double before = received(kOneMinute);
    now_ += 60s;
    EXPECT_NEAR(received(kOneMinute), before / std::exp(1), 0.01);
}

TEST_F(LoadAveragesTest, ASecondSampleOfTheSameMomentChangesNothing) {
    for (int i = 0; i < 10; ++i) second(100);
    double before = received(kOneMinute);
    EXPECT_EQ(received(kOneMinute), before);
}

TEST_F(LoadAveragesTest, EachLoadHasItsCounter) {
    counters_ = {};
    counters_.packets_in = 1;
    counters_.packets_out = 2;
    counters_.dropped_expired = counters_.dropped_too_large = counters_.dropped_queue_full =
        counters_.dropped_slow_qos0 = 1;
    counters_.publishes_in = 5;
    counters_.publishes_out = 6;
    counters_.bytes_in = 7;
    counters_.bytes_out = 8;
    counters_.accepted = 9;
    counters_.connects = 7;
    counters_.connects_refused = 3;
    load_.sample(now_ + 10s, counters_);
    double weight = 6 * (1 - std::exp(-10.0 / 60));
    const double expected[] = {1, 2, 4, 5, 6, 7, 8, 9, 10};
    for (size_t i = 0; i < LoadAverages::kLoadCount; ++i) {
        EXPECT_NEAR(load_.average(static_cast<LoadAverages::Load>(i), kOneMinute),
                    expected[i] * weight, 1e-9)
            << i;
    }
}

}  // namespace
}  // namespace pgmqtt::broker
