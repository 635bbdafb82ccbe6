#include <gtest/gtest.h>

#include <string>

#include "mqtt/codec.h"
#include "unit/mqtt/packet_generator.h"

namespace pgmqtt::mqtt {
namespace {

constexpr Version kVersions[] = {Version::k31, Version::k311, Version::k5};
constexpr Sender kSenders[] = {Sender::kClient, Sender::kServer};

base::Status<DecodeError> decode_any(const Frame& frame, Version version, Sender sender,
                                     Packet& packet) {
    if (frame.first_byte >> 4 != 1) return decode(frame, version, sender, packet);
    base::Result<Connect, DecodeError> connect = decode_connect(frame);
    if (!connect.ok()) return base::fail(connect.error());
    packet = *connect;
    return base::Done{};
}

// Calls visit(packet, bytes, version, sender) for `count` packets of each type, version and sender.
template <class Visit>
void for_each_packet(uint32_t seed, int count, Visit visit) {
    PacketGenerator generator(seed);
    for (int type = 1; type <= 15; ++type) {
        for (Version version : kVersions) {
            for (Sender sender : kSenders) {
                if (!PacketGenerator::exists(PacketType{static_cast<uint8_t>(type)}, version,
                                             sender))
                    continue;
                for (int i = 0; i < count; ++i) {
                    Packet packet =
                        generator.packet(PacketType{static_cast<uint8_t>(type)}, version, sender);
                    std::string bytes;
                    encode(packet, version, bytes);
                    visit(packet, bytes, version, sender);
                }
            }
        }
    }
}

TEST(RoundTrip, decode_is_the_inverse_of_encode) {
    int packets = 0;
    Packet decoded;  // used again and again, like a connection does
    for_each_packet(
        1, 500,
        [&](const Packet& packet, const std::string& bytes, Version version, Sender sender) {
            Frame frame;
            auto state = next_frame(bytes, kMaxPacketSize, frame);
            ASSERT_TRUE(state.ok());
            ASSERT_EQ(*state, FrameState::kComplete);
            ASSERT_EQ(frame.size, bytes.size());
            ASSERT_TRUE(frame.minimal_length);
            auto status = decode_any(frame, version, sender, decoded);
            ASSERT_TRUE(status.ok()) << status.error().detail << " type " << packet.index() + 1;
            ASSERT_EQ(decoded, packet) << "type " << packet.index() + 1;
            std::string again;
            encode(decoded, version, again);
            ASSERT_EQ(again, bytes);
            if (const Publish* publish = std::get_if<Publish>(&packet)) {
                std::string head;
                encode_publish_head(*publish, version, head);
                ASSERT_EQ(head + std::string(publish->payload), bytes);
                ASSERT_EQ(encoded_size(*publish, version), bytes.size());
            }
            ++packets;
        });
    EXPECT_GE(packets, 20000);
}

// A prefix is incomplete until the last byte is there; its size is known as soon as it can be.
TEST(RoundTrip, each_prefix_is_incomplete) {
    for_each_packet(2, 10, [&](const Packet&, const std::string& bytes, Version, Sender) {
        for (size_t length = 0; length < bytes.size(); ++length) {
            Frame frame;
            // A copy of its own: reading past the prefix is an error under the sanitizer.
            std::string prefix = bytes.substr(0, length);
            prefix.shrink_to_fit();
            auto state = next_frame(prefix, kMaxPacketSize, frame);
            ASSERT_TRUE(state.ok());
            ASSERT_EQ(*state, FrameState::kIncomplete);
            ASSERT_TRUE(frame.size == 0 || frame.size == bytes.size());
            if (length >= 5) {
                ASSERT_EQ(frame.size, bytes.size());
            }
        }
    });
}

// The body cut short, with a remaining length that agrees: an error or, where the end of a packet
// is optional or a list, another valid packet.
TEST(RoundTrip, each_truncated_body_is_an_error_or_another_packet) {
    int refused = 0;
    for_each_packet(
        3, 20, [&](const Packet& packet, const std::string& bytes, Version version, Sender sender) {
            Frame whole;
            ASSERT_TRUE(next_frame(bytes, kMaxPacketSize, whole).ok());
            for (size_t length = 0; length < whole.body.size(); ++length) {
                std::string body{whole.body.substr(0, length)};
                body.shrink_to_fit();
                Frame cut{whole.first_byte, body, length + 2, true};
                Packet decoded;
                auto status = decode_any(cut, version, sender, decoded);
                if (!status.ok()) {
                    ++refused;
                    continue;
                }
                ASSERT_NE(decoded, packet);
                std::string again;
                encode(decoded, version, again);
                Packet twice;
                Frame frame;
                ASSERT_TRUE(next_frame(again, kMaxPacketSize, frame).ok());
                ASSERT_TRUE(decode_any(frame, version, sender, twice).ok());
                ASSERT_EQ(twice, decoded);
            }
        });
    EXPECT_GT(refused, 10000);
}

// One byte changed at random: whatever comes out, nothing is read that is not there.
TEST(RoundTrip, mutated_packets_decode_or_fail) {
    PacketGenerator dice(4);
    for_each_packet(5, 100,
                    [&](const Packet&, const std::string& bytes, Version version, Sender sender) {
                        std::string mutant = bytes;
                        mutant[dice.below(static_cast<uint32_t>(mutant.size()))] =
                            static_cast<char>(dice.below(256));
                        Frame frame;
                        auto state = next_frame(mutant, kMaxPacketSize, frame);
                        if (!state.ok() || *state != FrameState::kComplete) return;
                        Packet decoded;
                        auto status = decode_any(frame, version, sender, decoded);
                        if (!status.ok()) {
                            ASSERT_TRUE(is_error(status.error().reason));
                        }
                    });
}

TEST(RoundTrip, message_properties) {
    PacketGenerator generator(6);
    Properties decoded;
    for (int i = 0; i < 1000; ++i) {
        Packet packet = generator.packet(PacketType::kPublish, Version::k5, Sender::kServer);
        Properties properties = std::get<Publish>(packet).properties;
        std::string stored;
        encode_message_properties(properties, stored);
        ASSERT_TRUE(decode_message_properties(stored, decoded).ok());
        // What belongs to one delivery is not stored.
        properties.topic_alias.reset();
        properties.subscription_identifiers.clear();
        ASSERT_EQ(decoded, properties);
    }
    EXPECT_FALSE(decode_message_properties("\x23\x01\x01", decoded).ok());  // a topic alias
    EXPECT_FALSE(decode_message_properties("\x02\x01", decoded).ok());
    EXPECT_TRUE(decode_message_properties("", decoded).ok());
    EXPECT_EQ(decoded, Properties{});
}

}  // namespace
}  // namespace pgmqtt::mqtt
