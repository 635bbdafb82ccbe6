#include "base/bytes.h"

#include <gtest/gtest.h>

namespace pgmqtt::base {
namespace {

TEST(ByteReader, reads_what_the_writers_wrote) {
    std::string out;
    put_u8(out, 0xAB);
    put_u16(out, 0x0102);
    put_u32(out, 0xFFFEFDFC);
    put_u64(out, 0x0102030405060708);
    put_prefixed16(out, "abc");
    put_prefixed32(out, ByteView("\0\xff", 2));
    EXPECT_EQ(out.substr(0, 3), "\xAB\x01\x02");

    ByteReader in(out);
    EXPECT_EQ(in.u8(), 0xAB);
    EXPECT_EQ(in.u16(), 0x0102);
    EXPECT_EQ(in.u32(), 0xFFFEFDFC);
    EXPECT_EQ(in.u64(), 0x0102030405060708U);
    EXPECT_EQ(in.prefixed16(), "abc");
    EXPECT_EQ(in.prefixed32(), ByteView("\0\xff", 2));
    EXPECT_TRUE(in.ok());
    EXPECT_EQ(in.remaining(), 0U);
    EXPECT_EQ(in.position(), out.size());
}

TEST(ByteReader, fails_at_the_end_and_stays_failed) {
    ByteReader in(ByteView("\x01\x02\x03", 3));
    EXPECT_EQ(in.u8(), 1);
    EXPECT_EQ(in.u32(), 0U);
    EXPECT_FALSE(in.ok());
    // Two bytes are left, but a field is missing in between.
    EXPECT_EQ(in.u16(), 0);
    EXPECT_EQ(in.take(0), "");
    EXPECT_FALSE(in.ok());
}

TEST(ByteReader, length_prefix_beyond_the_end) {
    ByteReader in(ByteView("\x00\x05xyz", 5));
    EXPECT_EQ(in.prefixed16(), "");
    EXPECT_FALSE(in.ok());
    ByteReader huge(ByteView("\xff\xff\xff\xff", 4));
    EXPECT_EQ(huge.prefixed32(), "");
    EXPECT_FALSE(huge.ok());
    ByteReader huge_count("abc");
    EXPECT_EQ(huge_count.take(SIZE_MAX), "");
    EXPECT_FALSE(huge_count.ok());
}

TEST(ByteReader, empty) {
    ByteReader in("");
    EXPECT_TRUE(in.ok());
    EXPECT_EQ(in.take(0), "");
    EXPECT_TRUE(in.ok());
    EXPECT_EQ(in.u8(), 0);
    EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace pgmqtt::base
