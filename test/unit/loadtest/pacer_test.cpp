// With a fake clock: the pacer is told what time it is.
#include "loadtest/pacer.h"

#include <gtest/gtest.h>

namespace pgmqtt::loadtest {
namespace {

TEST(Pacer, TheFirstIsDueAtTheStart) {
    Pacer pacer(5 * kSecond, 1000);
    EXPECT_FALSE(pacer.is_due(5 * kSecond - 1));
    EXPECT_TRUE(pacer.is_due(5 * kSecond));
    EXPECT_EQ(pacer.take(), 5 * kSecond);
    EXPECT_FALSE(pacer.is_due(5 * kSecond));
    EXPECT_EQ(pacer.next(), 5 * kSecond + kMillisecond);
}

TEST(Pacer, ALateLookFindsAllWithTheirOwnInstants) {
    Pacer pacer(0, 1000);
    Nanos late = 100 * kMillisecond;  // the loader was away
    for (Nanos i = 0; i <= 100; ++i) {
        ASSERT_TRUE(pacer.is_due(late));
        EXPECT_EQ(pacer.take(), i * kMillisecond);
    }
    EXPECT_FALSE(pacer.is_due(late));
}

TEST(Pacer, ErrorsDoNotAddUp) {
    Pacer pacer(kSecond, 300'000);  // every 3333.3 ns
    for (int i = 0; i < 300'000; ++i) pacer.take();
    EXPECT_EQ(pacer.next(), 2 * kSecond);
    EXPECT_EQ(pacer.taken(), 300'000U);
}

}  // namespace
}  // namespace pgmqtt::loadtest
