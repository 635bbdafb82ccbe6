#include "loadtest/payload.h"

#include <gtest/gtest.h>

#include <string>

namespace pgmqtt::loadtest {
namespace {

constexpr Stamp kStamp{.run = 0xdeadbeef, .publisher = 7, .sequence = 1ULL << 40, .scheduled = 99};

TEST(Payload, SaysWhatWasStamped) {
    for (size_t size : {32U, 33U, 64U, 1000U, 262144U}) {
        Payload payload(size);
        base::ByteView bytes = payload.stamp(kStamp);
        EXPECT_EQ(bytes.size(), size);
        EXPECT_EQ(read_stamp(bytes), kStamp);
    }
}

TEST(Payload, EveryChangedByteIsNoticed) {
    Payload payload(96);
    std::string bytes(payload.stamp(kStamp));
    for (size_t i = 0; i < bytes.size(); ++i) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        EXPECT_FALSE(read_stamp(changed)) << "byte " << i;
    }
}

TEST(Payload, ShorterOrLongerIsNoticed) {
    Payload payload(64);
    std::string bytes(payload.stamp(kStamp));
    for (size_t size : {0U, 1U, 31U, 32U, 63U})
        EXPECT_FALSE(read_stamp(base::ByteView(bytes).substr(0, size))) << size;
    EXPECT_FALSE(read_stamp(bytes + "x"));
}

TEST(Payload, JsonHasTheSizeThatWasAskedFor) {
    Payload payload(128);
    base::ByteView json =
        payload.stamp_json({.run = 1, .publisher = 2, .sequence = 3, .scheduled = 4});
    EXPECT_EQ(json.size(), 128U);
    EXPECT_TRUE(json.starts_with(R"({"r":1,"p":2,"s":3,"t":4,"f":"x)"));
    EXPECT_TRUE(json.ends_with("x\"}"));
}

}  // namespace
}  // namespace pgmqtt::loadtest
