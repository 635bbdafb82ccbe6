#include "base/pace.h"

#include <gtest/gtest.h>

namespace pgmqtt::base {
namespace {

using namespace std::chrono_literals;

TEST(PaceTest, ABurstGoesAtOnceAndThenOnePerInterval) {
    Pace pace(3);
    MonoTime now{1h};
    for (int i = 0; i < 3; ++i) {
        ASSERT_LE(pace.next(), now);
        pace.take(now, 5ms);
    }
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(pace.next(), now + 5ms);
        now += 5ms;
        pace.take(now, 5ms);
    }
}

TEST(PaceTest, WhoWaitsEarnsTheBurstAgainAndNoMore) {
    Pace pace(3);
    MonoTime now{1h};
    for (int i = 0; i < 3; ++i) pace.take(now, 5ms);
    now += 1h;
    for (int i = 0; i < 3; ++i) {
        ASSERT_LE(pace.next(), now);
        pace.take(now, 5ms);
    }
    EXPECT_GT(pace.next(), now);
}

TEST(PaceTest, NoIntervalNoWait) {
    Pace pace(3);
    MonoTime now{1h};
    for (int i = 0; i < 100; ++i) pace.take(now, 0ms);
    EXPECT_LE(pace.next(), now);
}

}  // namespace
}  // namespace pgmqtt::base
