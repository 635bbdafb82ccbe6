#include "broker/deadline_heap.h"

#include <gtest/gtest.h>

#include <random>

namespace pgmqtt::broker {
namespace {

using namespace std::chrono_literals;

constexpr base::MonoTime kStart{1h};

struct Item {
    uint32_t place = kNoPlace;
};
using Heap = DeadlineHeap<Item, &Item::place>;

TEST(DeadlineHeapTest, TheFirstIsInFront) {
    Heap heap;
    Item a, b, c;
    EXPECT_EQ(heap.next(), base::kNever);
    heap.set(a, kStart + 2s);
    heap.set(b, kStart + 1s);
    heap.set(c, kStart + 3s);
    EXPECT_EQ(&heap.front(), &b);
    EXPECT_EQ(heap.next(), kStart + 1s);
    EXPECT_EQ(heap.deadline(c), kStart + 3s);
    heap.remove(b);
    EXPECT_EQ(&heap.front(), &a);
    EXPECT_EQ(heap.deadline(b), base::kNever);
}

TEST(DeadlineHeapTest, AnItemStandsInItOnce) {
    Heap heap;
    Item a;
    for (int i = 0; i < 1000; ++i) heap.set(a, kStart - std::chrono::seconds(i));
    EXPECT_EQ(heap.size(), 1u);
    heap.set(a, base::kNever);
    EXPECT_TRUE(heap.empty());
    heap.remove(a);  // also one that is not in
    EXPECT_EQ(a.place, kNoPlace);
}

TEST(DeadlineHeapTest, KnowsTheFirstWhateverComesAndGoes) {
    std::mt19937 random(1);
    Heap heap;
    std::vector<Item> items(200);
    std::vector<base::MonoTime> deadlines(items.size(), base::kNever);
    for (int step = 0; step < 20000; ++step) {
        size_t i = random() % items.size();
        bool leaves = random() % 3 == 0;
        deadlines[i] = leaves ? base::kNever : kStart + std::chrono::seconds(random() % 500);
        if (leaves) {
            heap.remove(items[i]);
        } else {
            heap.set(items[i], deadlines[i]);
        }
        ASSERT_EQ(heap.next(), *std::min_element(deadlines.begin(), deadlines.end()));
        ASSERT_EQ(heap.deadline(items[i]), deadlines[i]);
    }
    EXPECT_EQ(heap.size(), static_cast<size_t>(std::count_if(
                               deadlines.begin(), deadlines.end(),
                               [](base::MonoTime at) { return at != base::kNever; })));
}

}  // namespace
}  // namespace pgmqtt::broker
