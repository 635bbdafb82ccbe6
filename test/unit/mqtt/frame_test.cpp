#include <gtest/gtest.h>

#include <string>

#include "mqtt/codec.h"

namespace pgmqtt::mqtt {
namespace {

std::string header(std::initializer_list<int> bytes) {
    std::string out;
    for (int byte : bytes) out.push_back(static_cast<char>(byte));
    return out;
}

TEST(Frame, takes_the_first_packet_of_several) {
    std::string bytes = header({0xC0, 0x00, 0x40, 0x02, 0x00, 0x07, 0xC0});
    Frame frame;
    ASSERT_EQ(*next_frame(bytes, 100, frame), FrameState::kComplete);
    EXPECT_EQ(frame.first_byte, 0xC0);
    EXPECT_EQ(frame.size, 2U);
    EXPECT_EQ(frame.body, "");
    ASSERT_EQ(*next_frame(ByteView(bytes).substr(2), 100, frame), FrameState::kComplete);
    EXPECT_EQ(frame.first_byte, 0x40);
    EXPECT_EQ(frame.body, ByteView("\0\7", 2));
    ASSERT_EQ(*next_frame(ByteView(bytes).substr(6), 100, frame), FrameState::kIncomplete);
    EXPECT_EQ(frame.size, 0U);
}

// Table 1-1 of 5.0: the bounds of one to four bytes.
TEST(Frame, remaining_length) {
    struct Case {
        std::initializer_list<int> bytes;
        size_t size;
    };
    const Case cases[] = {
        {{0x30, 0x7F}, 2 + 127},
        {{0x30, 0x80, 0x01}, 3 + 128},
        {{0x30, 0xFF, 0x7F}, 3 + 16383},
        {{0x30, 0x80, 0x80, 0x01}, 4 + 16384},
        {{0x30, 0xFF, 0xFF, 0x7F}, 4 + 2097151},
        {{0x30, 0x80, 0x80, 0x80, 0x01}, 5 + 2097152},
        {{0x30, 0xFF, 0xFF, 0xFF, 0x7F}, kMaxPacketSize},
    };
    for (const Case& row : cases) {
        Frame frame;
        ASSERT_EQ(*next_frame(header(row.bytes), kMaxPacketSize, frame), FrameState::kIncomplete);
        EXPECT_EQ(frame.size, row.size);
        EXPECT_TRUE(frame.minimal_length);
    }
}

TEST(Frame, remaining_length_of_five_bytes_is_malformed) {
    Frame frame;
    for (int last : {0x00, 0x01, 0x7F, 0x80}) {
        auto state =
            next_frame(header({0x30, 0x80, 0x80, 0x80, 0x80, last}), kMaxPacketSize, frame);
        ASSERT_FALSE(state.ok());
        EXPECT_EQ(state.error().reason, ReasonCode::kMalformedPacket);
    }
    // The fourth byte says it already.
    EXPECT_FALSE(next_frame(header({0x30, 0xFF, 0xFF, 0xFF, 0xFF}), kMaxPacketSize, frame).ok());
}

TEST(Frame, too_large_is_told_before_the_body_comes) {
    Frame frame;
    std::string bytes = header({0x30, 0x80, 0x01});  // 131 bytes in all
    EXPECT_EQ(*next_frame(bytes, 131, frame), FrameState::kIncomplete);
    auto state = next_frame(bytes, 130, frame);
    ASSERT_FALSE(state.ok());
    EXPECT_EQ(state.error().reason, ReasonCode::kPacketTooLarge);
}

TEST(Frame, a_length_of_more_bytes_than_needed_is_noted) {
    Frame frame;
    for (auto bytes : {header({0xC0, 0x80, 0x00}), header({0xC0, 0x80, 0x80, 0x80, 0x00})}) {
        ASSERT_EQ(*next_frame(bytes, 100, frame), FrameState::kComplete);
        EXPECT_FALSE(frame.minimal_length);
        EXPECT_EQ(frame.size, bytes.size());
        Packet packet;
        EXPECT_TRUE(decode(frame, Version::k311, Sender::kClient, packet).ok());
        EXPECT_FALSE(decode(frame, Version::k5, Sender::kClient, packet).ok());
    }
}

TEST(Connect, level_is_told_with_an_error) {
    auto error_of = [](std::string_view name, int level, int flags) {
        std::string body = header({0, static_cast<int>(name.size())}).append(name);
        body += header({level, flags, 0, 60, 0, 0});
        return decode_connect(Frame{0x10, body, body.size() + 2}).error();
    };
    EXPECT_EQ(error_of("MQTT", 6, 2).protocol_level, 6);
    EXPECT_EQ(error_of("MQTT", 6, 2).reason, ReasonCode::kUnsupportedProtocolVersion);
    EXPECT_EQ(error_of("MQTT", 4, 3).protocol_level, 4);
    EXPECT_EQ(error_of("MQTT", 4, 3).reason, ReasonCode::kMalformedPacket);
    EXPECT_EQ(error_of("MQTT", 0x84, 3).protocol_level, 0x84);
    EXPECT_EQ(error_of("MQXX", 4, 2).protocol_level, 0);
}

TEST(Publish, storage_is_used_again) {
    Packet packet;
    std::string bytes = header({0x30, 0x0B, 0, 1, 't', 7, 0x26, 0, 1, 'a', 0, 1, 'b'});
    Frame frame;
    ASSERT_EQ(*next_frame(bytes, 100, frame), FrameState::kComplete);
    ASSERT_TRUE(decode(frame, Version::k5, Sender::kClient, packet).ok());
    const UserProperty* first = std::get<Publish>(packet).properties.user_properties.data();
    ASSERT_TRUE(decode(frame, Version::k5, Sender::kClient, packet).ok());
    EXPECT_EQ(std::get<Publish>(packet).properties.user_properties.data(), first);
    EXPECT_EQ(std::get<Publish>(packet).properties.user_properties.size(), 1U);
    // The next one has none: nothing of the last remains.
    bytes = header({0x30, 0x04, 0, 1, 't', 0});
    ASSERT_EQ(*next_frame(bytes, 100, frame), FrameState::kComplete);
    ASSERT_TRUE(decode(frame, Version::k5, Sender::kClient, packet).ok());
    EXPECT_EQ(std::get<Publish>(packet).properties, Properties{});
}

TEST(Reason, names) {
    EXPECT_EQ(name(ReasonCode::kMalformedPacket), "Malformed Packet");
    EXPECT_EQ(name(ReasonCode{0x42}), "Unknown reason code");
}

}  // namespace
}  // namespace pgmqtt::mqtt
