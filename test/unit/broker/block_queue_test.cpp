#include "broker/block_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace pgmqtt::broker {
namespace {

using namespace std::chrono_literals;

constexpr base::MonoTime kStart{1h};

struct Item {
    uint64_t number = 0;
    base::MonoTime expires = base::kNever;
};

base::MonoTime deadline_of(const Item& item) {
    return item.expires;
}

class BlockQueueTest : public ::testing::Test {
   protected:
    void push(base::MonoTime expires) { queue_.push_back({next_++, expires}, expires); }

    // How many were looked at.
    size_t expire(base::MonoTime now, size_t budget = SIZE_MAX) {
        size_t left = budget;
        queue_.expire(now, left, deadline_of, [&](const Item& item) {
            EXPECT_LE(item.expires, now);
            ++expired_;
        });
        return budget - left;
    }

    BlockQueue<Item> queue_;
    uint64_t next_ = 0;
    size_t expired_ = 0;
};

constexpr size_t kBlock = BlockQueue<Item>::kBlock;

TEST_F(BlockQueueTest, IsAQueue) {
    EXPECT_TRUE(queue_.empty());
    for (size_t i = 0; i < 1000; ++i) push(base::kNever);
    EXPECT_EQ(queue_.size(), 1000u);
    for (size_t i = 0; i < 1000; ++i) {
        EXPECT_EQ(queue_.front().number, i);
        EXPECT_EQ(queue_.take_front().number, i);
    }
    EXPECT_TRUE(queue_.empty());
    push(base::kNever);
    EXPECT_EQ(queue_.front().number, 1000u);
}

TEST_F(BlockQueueTest, NothingIsLookedAtBeforeItsTime) {
    for (int i = 0; i < 100000; ++i) push(i % 2 == 0 ? base::kNever : kStart + 3600s);
    EXPECT_EQ(queue_.next_expiry(), kStart + 3600s);
    EXPECT_EQ(expire(kStart + 3599s), 0u);
    EXPECT_EQ(queue_.size(), 100000u);
}

TEST_F(BlockQueueTest, OneThatExpiresCostsALookAtItsBlock) {
    for (int i = 0; i < 100000; ++i) push(kStart + (i == 54321 ? 1s : 3600s));
    EXPECT_EQ(expire(kStart + 1s), kBlock);
    EXPECT_EQ(expired_, 1u);
    EXPECT_EQ(queue_.next_expiry(), kStart + 3600s);
    EXPECT_EQ(expire(kStart + 2s), 0u);
}

TEST_F(BlockQueueTest, ManyAtOnceGoInSlices) {
    constexpr size_t kItems = 100000;
    for (size_t i = 0; i < kItems; ++i) push(kStart);
    size_t looks = 0;
    for (int slices = 0; queue_.next_expiry() <= kStart; ++slices) {
        ASSERT_LT(slices, 11);
        size_t before = expired_;
        looks += expire(kStart, 10000);
        ASSERT_LT(expired_ - before, 10000 + kBlock);
    }
    EXPECT_EQ(expired_, kItems);
    EXPECT_LE(looks, kItems);  // each once
    EXPECT_TRUE(queue_.empty());
    EXPECT_LE(queue_.block_count(), 1u);
}

// As they come with one interval for all: the due are in the first blocks.
TEST_F(BlockQueueTest, InOrderEachIsLookedAtOnceOrTwice) {
    constexpr size_t kItems = 100000;
    for (size_t i = 0; i < kItems; ++i) push(kStart + i * 1ms);
    size_t looks = 0;
    for (base::MonoTime now = kStart; now < kStart + kItems * 1ms; now += 100ms) {
        looks += expire(now + 99ms);
    }
    EXPECT_EQ(expired_, kItems);
    EXPECT_LE(looks, kItems * 3);
}

TEST_F(BlockQueueTest, WhatIsLeftOfManyTakesFewBlocks) {
    for (size_t i = 0; i < 1000 * kBlock; ++i) push(i % kBlock == 7 ? base::kNever : kStart);
    EXPECT_EQ(queue_.block_count(), 1000u);
    expire(kStart);
    EXPECT_EQ(queue_.size(), 1000u);
    EXPECT_LE(queue_.block_count(), 2 * (1000 / kBlock) + 4);
    for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(queue_.take_front().number, i * kBlock + 7);
}

TEST_F(BlockQueueTest, WhatIsTakenIsNotWaitedFor) {
    push(kStart + 1s);
    push(kStart + 2s);
    queue_.take_front();
    queue_.take_front();
    EXPECT_EQ(queue_.next_expiry(), base::kNever);
}

// Against a deque, with everything that a session does to its queue.
TEST_F(BlockQueueTest, LosesAndMisordersNothing) {
    std::mt19937 random(1);
    std::deque<Item> model;
    base::MonoTime now = kStart;
    uint64_t lowest = uint64_t{1} << 40;  // of what is put before the others
    next_ = lowest;
    auto some_time = [&] {
        return random() % 3 == 0 ? base::kNever : now + std::chrono::seconds(random() % 100);
    };
    auto number_below = [](uint64_t number) {
        return [number](const Item& item) { return item.number < number; };
    };
    for (int step = 0; step < 20000; ++step) {
        switch (random() % 6) {
            case 0:
            case 1:
                for (size_t n = random() % 100; n > 0; --n) {
                    model.push_back({next_, some_time()});
                    push(model.back().expires);
                }
                break;
            case 2:
                for (size_t n = random() % 100; n > 0 && !model.empty(); --n) {
                    ASSERT_EQ(queue_.take_front().number, model.front().number);
                    model.pop_front();
                }
                break;
            case 3: {
                std::vector<Item> items(random() % 10 == 0 ? random() % 600 : random() % 20);
                for (size_t i = items.size(); i-- > 0;) {
                    items[i] = {--lowest, some_time()};
                    model.push_front(items[i]);
                }
                queue_.prepend(items, deadline_of);
                break;
            }
            case 4: {
                if (model.empty()) break;
                size_t i = random() % std::min<size_t>(model.size(), 1000);
                ASSERT_EQ(queue_[i].number, model[i].number);
                ASSERT_EQ(queue_.find_first(number_below(model[i].number)), &queue_[i]);
                ASSERT_EQ(queue_.take(i).number, model[i].number);
                model.erase(model.begin() + static_cast<std::ptrdiff_t>(i));
                break;
            }
            default:
                now += std::chrono::seconds(random() % 10);
                std::erase_if(model, [&](const Item& item) { return item.expires <= now; });
                expire(now);
        }
        ASSERT_EQ(queue_.size(), model.size());
        if (step % 100 != 0) continue;
        for (const Item& item : model) ASSERT_LE(queue_.next_expiry(), item.expires);
    }
    EXPECT_GT(expired_, 10000u);
    // From the back, up to a point.
    uint64_t middle = model[model.size() / 2].number;
    size_t i = model.size() / 2;
    bool all = queue_.for_each_below(number_below(middle), [&](const Item& item) {
        EXPECT_EQ(item.number, model[--i].number);
        return i > 3;
    });
    EXPECT_FALSE(all);
    EXPECT_EQ(i, 3u);
    std::vector<Item> rest = queue_.take_all();
    ASSERT_EQ(rest.size(), model.size());
    for (size_t j = 0; j < rest.size(); ++j) EXPECT_EQ(rest[j].number, model[j].number);
    EXPECT_TRUE(queue_.empty());
    EXPECT_EQ(queue_.next_expiry(), base::kNever);
}

}  // namespace
}  // namespace pgmqtt::broker
