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

TEST(InputBufferTest, PreparedOnceItDoesNotMoveAgain) {
    InputBuffer buffer;
    buffer.assign(std::string(10000, 'p'), 50000);
    const char* before = buffer.bytes().data();
    buffer.prepare(50000);
    while (buffer.size() < 50000) {
        buffer.reserve();
        ASSERT_GT(buffer.reserved(), 0u);
        buffer.commit(std::min<size_t>(buffer.reserved(), 7000));
        buffer.consume(0);
        ASSERT_EQ(before, buffer.bytes().data());
    }
    EXPECT_EQ(50000u, buffer.capacity());
    buffer.prepare(60000);
    EXPECT_EQ(60000u, buffer.capacity());
    EXPECT_EQ(std::string(10000, 'p'), buffer.bytes().substr(0, 10000));
}

TEST(InputBufferTest, KeptBytesStayAndTheRestMoves) {
    InputBuffer buffer;
    buffer.assign(std::string(5000, 'k') + "rest");
    const base::ByteView before = buffer.bytes();
    std::shared_ptr<const void> owner = buffer.keep();
    EXPECT_EQ(before.data(), buffer.bytes().data());
    EXPECT_EQ(owner, buffer.keep());  // of the second packet in it
    buffer.consume(5000);
    EXPECT_EQ("rest", buffer.bytes());
    EXPECT_NE(before.data() + 5000, buffer.bytes().data());
    EXPECT_LE(buffer.capacity(), 64u);
    std::memcpy(buffer.reserve(), "!", 1);
    buffer.commit(1);
    EXPECT_EQ("rest!", buffer.bytes());
    buffer.consume(5);
    EXPECT_EQ(0u, buffer.capacity());
    EXPECT_EQ(std::string(5000, 'k'), before.substr(0, 5000));
}

TEST(InputBufferTest, KeptBytesThatNobodyConsumedAreCopied) {
    InputBuffer buffer;
    buffer.assign("not yet");
    std::weak_ptr<const void> owner = buffer.keep();
    buffer.consume(0);
    EXPECT_TRUE(owner.expired());
    EXPECT_EQ("not yet", buffer.bytes());
    buffer.keep();
    buffer.release();
    EXPECT_EQ(0u, buffer.capacity());
}

TEST(ConnectionTest, IdleConnectionsAreSmall) {
    EXPECT_LE(sizeof(Connection), 128u);
}

}  // namespace
}  // namespace pgmqtt::net
