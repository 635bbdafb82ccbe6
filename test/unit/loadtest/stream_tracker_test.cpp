#include "loadtest/stream_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace pgmqtt::loadtest {
namespace {

TEST(StreamTracker, InOrderIsInOrder) {
    StreamTracker tracker;
    for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(tracker.arrived(i), Arrival::kInOrder);
    EXPECT_EQ(tracker.lost(1000), 0U);
    EXPECT_EQ(tracker.lost(1003), 3U);
}

TEST(StreamTracker, NothingCameAtAll) {
    StreamTracker tracker;
    EXPECT_EQ(tracker.lost(5), 5U);
    EXPECT_EQ(tracker.lost(0), 0U);
}

TEST(StreamTracker, AGapIsLostUntilItIsFilled) {
    StreamTracker tracker;
    tracker.arrived(0);
    EXPECT_EQ(tracker.arrived(4), Arrival::kInOrder);
    EXPECT_EQ(tracker.lost(5), 3U);
    EXPECT_EQ(tracker.arrived(2), Arrival::kLate);
    EXPECT_EQ(tracker.lost(5), 2U);
    EXPECT_EQ(tracker.arrived(2), Arrival::kDuplicate);
    EXPECT_EQ(tracker.arrived(1), Arrival::kLate);
    EXPECT_EQ(tracker.arrived(3), Arrival::kLate);
    EXPECT_EQ(tracker.lost(5), 0U);
    for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(tracker.arrived(i), Arrival::kDuplicate);
}

TEST(StreamTracker, ARepeatedMessageIsADuplicate) {
    StreamTracker tracker;
    tracker.arrived(0);
    tracker.arrived(1);
    EXPECT_EQ(tracker.arrived(1), Arrival::kDuplicate);
    EXPECT_EQ(tracker.arrived(0), Arrival::kDuplicate);
    EXPECT_EQ(tracker.arrived(2), Arrival::kInOrder);
    EXPECT_EQ(tracker.lost(3), 0U);
}

TEST(StreamTracker, AgreesWithASetOnShuffledTraffic) {
    std::mt19937 random(3);
    StreamTracker tracker;
    std::set<uint64_t> seen;
    uint64_t highest = 0;
    for (int i = 0; i < 20'000; ++i) {
        // Around a front that moves, with holes, repeats and late ones.
        uint64_t number = static_cast<uint64_t>(i) / 2 + random() % 64;
        Arrival expected = seen.contains(number)               ? Arrival::kDuplicate
                           : !seen.empty() && number < highest ? Arrival::kLate
                                                               : Arrival::kInOrder;
        EXPECT_EQ(tracker.arrived(number), expected) << i;
        seen.insert(number);
        highest = std::max(highest, number);
    }
    EXPECT_EQ(tracker.lost(highest + 1), highest + 1 - seen.size());
    EXPECT_FALSE(tracker.gave_up());
}

TEST(StreamTracker, MemoryIsBoundedAndTheCountStaysExact) {
    StreamTracker tracker;
    uint64_t arrivals = StreamTracker::kMaxGaps + 100;
    for (uint64_t i = 0; i < arrivals; ++i) tracker.arrived(2 * i + 1);
    EXPECT_TRUE(tracker.gave_up());
    EXPECT_EQ(tracker.lost(2 * arrivals), arrivals);
    EXPECT_EQ(tracker.arrived(0), Arrival::kDuplicate);  // of a gap that was given up
    EXPECT_EQ(tracker.arrived(2 * arrivals - 2), Arrival::kLate);
}

}  // namespace
}  // namespace pgmqtt::loadtest
