#include "base/outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pgmqtt::base {
namespace {

std::string unsent(const Outbox& outbox, size_t capacity = 1024) {
    std::vector<iovec> vectors(capacity);
    size_t count = outbox.gather(vectors.data(), capacity);
    std::string bytes;
    for (size_t i = 0; i < count; ++i) {
        EXPECT_GT(vectors[i].iov_len, 0U);
        bytes.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
    }
    return bytes;
}

std::shared_ptr<const std::string> shared(std::string bytes) {
    return std::make_shared<const std::string>(std::move(bytes));
}

TEST(Outbox, empty) {
    Outbox outbox;
    EXPECT_TRUE(outbox.empty());
    EXPECT_EQ(unsent(outbox), "");
    outbox.consume(0);
    outbox.clear();
    outbox.tail();
    EXPECT_TRUE(outbox.empty());
    EXPECT_EQ(unsent(outbox), "");
    outbox.consume(0);
}

TEST(Outbox, keeps_the_order_of_copied_and_shared_bytes) {
    Outbox outbox;
    auto payload = shared("<payload>");
    outbox.tail().append("head");
    outbox.append_shared(payload, *payload);
    outbox.append_shared(payload, ByteView(*payload).substr(1, 3));
    outbox.tail();
    outbox.append_shared(payload, "");
    outbox.tail().append("tail");
    EXPECT_EQ(outbox.size(), 4U + 9 + 3 + 4);
    EXPECT_EQ(unsent(outbox), "head<payload>paytail");
    EXPECT_EQ(unsent(outbox, 2), "head<payload>");
    EXPECT_EQ(unsent(outbox, 0), "");
    outbox.consume(6);
    EXPECT_EQ(unsent(outbox), "ayload>paytail");
    outbox.consume(outbox.size());
    EXPECT_TRUE(outbox.empty());
    outbox.tail().append("again");
    EXPECT_EQ(unsent(outbox), "again");
}

TEST(Outbox, releases_a_payload_once_it_is_sent) {
    Outbox outbox;
    auto payload = shared("payload");
    outbox.append_shared(payload, *payload);
    EXPECT_EQ(payload.use_count(), 2);
    outbox.consume(3);
    EXPECT_EQ(payload.use_count(), 2);
    outbox.consume(4);
    EXPECT_EQ(payload.use_count(), 1);
}

TEST(Outbox, keeps_no_large_block_once_it_is_sent) {
    Outbox outbox;
    outbox.tail().assign(1 << 20, 'x');
    outbox.consume(1 << 20);
    EXPECT_TRUE(outbox.empty());
    EXPECT_LT(outbox.tail().capacity(), 65536U);
}

TEST(Outbox, a_block_does_not_grow_for_ever_under_a_slow_reader) {
    Outbox outbox;
    for (int i = 0; i < 10000; ++i) {
        outbox.tail().append(1000, 'x');
        EXPECT_LT(outbox.tail().size(), 70000U);
        if (i > 0) outbox.consume(1000);  // one packet behind all the time
    }
    EXPECT_EQ(outbox.size(), 1000U);
}

TEST(Outbox, more_than_there_is_consumes_all) {
    Outbox outbox;
    outbox.tail().append("abc");
    outbox.consume(100);
    EXPECT_TRUE(outbox.empty());
    outbox.tail().append("d");
    EXPECT_EQ(unsent(outbox), "d");
}

TEST(Outbox, random_against_a_string) {
    std::mt19937 random(7);  // NOLINT: the same every time
    auto below = [&](size_t bound) { return static_cast<size_t>(random()) % bound; };
    Outbox outbox;
    std::string model;
    for (int step = 0; step < 20000; ++step) {
        std::string bytes(below(300), static_cast<char>('a' + step % 26));
        switch (below(4)) {
            case 0:
                outbox.tail().append(bytes);
                model += bytes;
                break;
            case 1:
                outbox.append_shared(shared(bytes), "");
                break;
            case 2: {
                auto owner = shared(bytes);
                outbox.append_shared(owner, *owner);
                model += bytes;
                break;
            }
            default: {
                size_t count = std::min(below(600), model.size());
                outbox.consume(count);
                model.erase(0, count);
            }
        }
        ASSERT_EQ(outbox.size(), model.size());
        if (step % 50 == 0) {
            ASSERT_EQ(unsent(outbox, 100000), model);
        }
    }
}

}  // namespace
}  // namespace pgmqtt::base
