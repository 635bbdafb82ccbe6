#include "mqtt/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace pgmqtt::mqtt {
namespace {

void append_code_point(std::string& out, uint32_t code) {
    auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xC0 | code >> 6);
        put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        put(0xE0 | code >> 12);
        put(0x80 | (code >> 6 & 0x3F));
        put(0x80 | (code & 0x3F));
    } else {
        put(0xF0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3F));
        put(0x80 | (code >> 6 & 0x3F));
        put(0x80 | (code & 0x3F));
    }
}

TEST(Utf8, every_code_point_but_surrogates) {
    std::string text;
    for (uint32_t code = 0; code < 0x120000; ++code) {
        text.clear();
        append_code_point(text, code);
        bool surrogate = code >= 0xD800 && code < 0xE000;
        ASSERT_EQ(is_well_formed_utf8(text), !surrogate && code <= 0x10FFFF) << code;
        ASSERT_EQ(is_valid_string(text), !surrogate && code <= 0x10FFFF && code != 0) << code;
    }
}

// All strings of one to three bytes against the definition: the only well-formed ones are those
// that append_code_point() writes.
TEST(Utf8, short_strings_exhaustively) {
    std::string text;
    size_t well_formed[4] = {};
    for (uint32_t length = 1; length <= 3; ++length) {
        for (uint32_t bytes = 0; bytes < 1U << 8 * length; ++bytes) {
            text.clear();
            for (uint32_t i = 0; i < length; ++i) text.push_back(static_cast<char>(bytes >> 8 * i));
            well_formed[length] += is_well_formed_utf8(text);
        }
    }
    size_t one = 0x80, two = 0x800 - 0x80, three = 0x10000 - 0x800 - 0x800;
    EXPECT_EQ(well_formed[1], one);
    EXPECT_EQ(well_formed[2], one * one + two);
    EXPECT_EQ(well_formed[3], one * one * one + 2 * one * two + three);
}

TEST(Utf8, four_byte_forms_at_the_bounds) {
    EXPECT_TRUE(is_well_formed_utf8("\xF0\x90\x80\x80"));
    EXPECT_FALSE(is_well_formed_utf8("\xF0\x8F\xBF\xBF"));
    EXPECT_TRUE(is_well_formed_utf8("\xF4\x8F\xBF\xBF"));
    EXPECT_FALSE(is_well_formed_utf8("\xF4\x90\x80\x80"));
    EXPECT_FALSE(is_well_formed_utf8("\xF5\x80\x80\x80"));
    EXPECT_FALSE(is_well_formed_utf8("\xF0\x90\x80"));
}

TEST(Utf8, ill_formed_byte_at_every_position) {
    for (size_t length = 1; length < 40; ++length) {
        for (size_t at = 0; at < length; ++at) {
            std::string text(length, 'x');
            text[at] = '\xC0';
            EXPECT_FALSE(is_well_formed_utf8(text));
            text[at] = '\0';
            EXPECT_TRUE(is_well_formed_utf8(text));
            EXPECT_FALSE(is_valid_string(text));
        }
    }
}

}  // namespace
}  // namespace pgmqtt::mqtt
