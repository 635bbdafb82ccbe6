// A walk over retained messages that is interrupted by everything that can happen to them.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "broker/retained_store.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

MessagePtr message(std::string topic) {
    auto made = std::make_shared<Message>();
    made->topic = std::move(topic);
    made->copy_payload("x");
    return made;
}

std::string random_topic(std::mt19937& random) {
    static const char* const kLevels[] = {"a", "b", "", "$x", "c"};
    std::string topic = kLevels[random() % 5];
    for (size_t more = random() % 4; more > 0; --more) {
        topic += '/';
        topic += kLevels[random() % 5];
    }
    return topic.empty() ? "a" : topic;
}

TEST(RetainedCursorTest, FindsWhatWasThereAllTheTimeOnce) {
    const char* const filters[] = {"#", "+/#", "a/#", "a/+", "+/+/c", "a/b", "$x/#", "+", "/#"};
    std::mt19937 random(7);
    for (int round = 0; round < 2000; ++round) {
        RetainedStore store(random());
        std::set<std::string> topics;
        for (int i = 0; i < 40; ++i) topics.insert(random_topic(random));
        for (const std::string& topic : topics) store.set(message(topic));
        uint64_t since = store.last_number();

        const char* filter = filters[random() % std::size(filters)];
        std::set<std::string> stayed;
        for (const std::string& topic : topics) {
            if (mqtt::topic_matches(filter, topic)) stayed.insert(topic);
        }
        std::set<std::string> possible = stayed;
        std::multiset<std::string> found;
        RetainedCursor cursor(store, filter);
        while (!cursor.done()) {
            size_t budget = random() % 4;
            if (MessagePtr next = cursor.next(budget)) {
                if (next->retained_number <= since) found.insert(next->topic);
            }
            if (random() % 3 == 0) {
                RetainedCursor moved = std::move(cursor);
                cursor = std::move(moved);
            }
            std::string topic = random_topic(random);
            if (random() % 2 == 0) {
                store.erase(topic);
                stayed.erase(topic);
            } else if (topics.count(topic) == 0 || stayed.count(topic) == 0) {
                store.set(message(topic));
            }
        }
        for (const std::string& topic : stayed) ASSERT_EQ(found.count(topic), 1u) << topic;
        for (const std::string& topic : found) {
            ASSERT_EQ(found.count(topic), 1u);
            ASSERT_EQ(possible.count(topic), 1u);
        }
    }
}

TEST(RetainedCursorTest, LeavesNothingBehind) {
    RetainedStore store(1);
    store.set(message("a/b/c"));
    {
        RetainedCursor cursor(store, "a/b/c");
        size_t budget = 3;  // it stands on a/b
        EXPECT_EQ(cursor.next(budget), nullptr);
        EXPECT_TRUE(store.erase("a/b/c"));
        budget = 100;
        EXPECT_EQ(cursor.next(budget), nullptr);
        EXPECT_TRUE(cursor.done());
    }
    std::vector<MessagePtr> found;
    store.collect("#", base::MonoTime{}, found);
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(store.bytes(), 0u);
}

TEST(RetainedCursorTest, AStepIsBoundedWhateverTheFilter) {
    RetainedStore store(1);
    for (int i = 0; i < 10000; ++i) store.set(message("a/" + std::to_string(i) + "/b"));
    RetainedCursor cursor(store, "a/+/c");
    size_t calls = 0;
    while (!cursor.done()) {
        size_t budget = 1000;
        EXPECT_EQ(cursor.next(budget), nullptr);
        ++calls;
    }
    EXPECT_GE(calls, 10u);
    EXPECT_LE(calls, 12u);
}

}  // namespace
}  // namespace pgmqtt::broker
