#include "loadtest/packet_ids.h"

#include <gtest/gtest.h>

#include <set>

namespace pgmqtt::loadtest {
namespace {

TEST(PacketIds, EachIsUsedOnceAtATimeAndNeverZero) {
    PacketIds ids;
    ids.reset(100);
    std::set<uint16_t> used;
    while (!ids.full()) EXPECT_TRUE(used.insert(ids.take(used.size())).second);
    EXPECT_EQ(used.size(), 100U);
    EXPECT_FALSE(used.contains(0));
}

TEST(PacketIds, GivingBackTellsTheTokenOnce) {
    PacketIds ids;
    ids.reset(2);
    uint16_t first = ids.take(11), second = ids.take(22);
    EXPECT_TRUE(ids.full());
    EXPECT_EQ(ids.give_back(second), 22U);
    EXPECT_EQ(ids.give_back(second), std::nullopt);
    EXPECT_FALSE(ids.full());
    EXPECT_TRUE(ids.is_used(first));
    EXPECT_NE(ids.take(33), first);
}

TEST(PacketIds, OneThatIsNotAcknowledgedIsSteppedOver) {
    PacketIds ids;
    ids.reset(3);
    uint16_t held = ids.take(1);
    for (uint64_t i = 0; i < 100'000; ++i) {
        uint16_t id = ids.take(i);
        EXPECT_NE(id, held);
        EXPECT_EQ(ids.give_back(id), i);
    }
}

TEST(PacketIds, AllOf65535) {
    PacketIds ids;
    ids.reset(70'000);
    std::set<uint16_t> used;
    while (!ids.full()) used.insert(ids.take(5));
    EXPECT_EQ(used.size(), 65535U);
}

}  // namespace
}  // namespace pgmqtt::loadtest
