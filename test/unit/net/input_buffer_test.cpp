#include "net/input_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "net/connection.h"

namespace pgmqtt::net {
namespace {

TEST(InputBufferTest, EmptyHoldsNoMemory) {
    InputBuffer buffer;
    EXPECT_EQ(0u, buffer.capacity());
    buffer.assign(std::string(100000, 'x'));
    buffer.consume(100000);
    EXPECT_EQ(0u, buffer.capacity());
    buffer.assign("");
    EXPECT_EQ(0u, buffer.capacity());
}

TEST(InputBufferTest, GrowsWithWhatArrives) {
    InputBuffer buffer;
    std::string expected;
    buffer.assign("start");
    expected = "start";
    while (expected.size() < 300000) {
        char* room = buffer.reserve();
        const size_t count = std::min<size_t>(buffer.reserved(), 1000);
        ASSERT_GT(count, 0u);
        const std::string piece(count, static_cast<char>('a' + expected.size() % 26));
        std::memcpy(room, piece.data(), count);
        buffer.commit(count);
        expected += piece;
        ASSERT_LE(buffer.capacity(), std::max<size_t>(128, 2 * buffer.size()));
    }
    EXPECT_EQ(expected, buffer.bytes());
}

TEST(InputBufferTest, ConsumingGivesMemoryBack) {
    InputBuffer buffer;
    const std::string bytes(1 << 20, 'b');
    buffer.assign(bytes);
    buffer.consume(bytes.size() - 10);
    EXPECT_EQ(std::string(10, 'b'), buffer.bytes());
    EXPECT_LE(buffer.capacity(), 64u);
}

TEST(InputBufferTest, SmallRemaindersReuseTheBuffer) {
    InputBuffer buffer;
    buffer.assign("1234567890");
    const char* before = buffer.bytes().data();
    buffer.assign("12345678901");
    EXPECT_EQ(before, buffer.bytes().data());
    EXPECT_EQ("12345678901", buffer.bytes());
}

TEST(ConnectionTest, IdleConnectionsAreSmall) {
    EXPECT_LE(sizeof(Connection), 128u);
}

}  // namespace
}  // namespace pgmqtt::net
