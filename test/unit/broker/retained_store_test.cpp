#include "broker/retained_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

using namespace std::chrono_literals;

constexpr base::MonoTime kNow{1h};

MessagePtr message(std::string topic, std::string payload = "x",
                   base::MonoTime expires = base::kNever) {
    auto made = std::make_shared<Message>();
    made->topic = std::move(topic);
    made->copy_payload(std::move(payload));
    made->expires = expires;
    return made;
}

std::vector<std::string> topics(RetainedStore& store, base::ByteView filter,
                                base::MonoTime now = kNow) {
    std::vector<MessagePtr> found;
    store.collect(filter, now, found);
    std::vector<std::string> names;
    for (const MessagePtr& one : found) names.push_back(one->topic);
    std::sort(names.begin(), names.end());
    return names;
}

using Names = std::vector<std::string>;

TEST(RetainedStoreTest, KeepsTheLastOfATopic) {
    RetainedStore store(1);
    MessagePtr old = message("a", "1");
    store.set(old);
    store.set(message("a", "2"));
    EXPECT_EQ(store.count(), 1u);
    EXPECT_TRUE(old->superseded);
    std::vector<MessagePtr> found;
    store.collect("a", kNow, found);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]->payload(), "2");
    EXPECT_FALSE(found[0]->superseded);
}

TEST(RetainedStoreTest, EraseLeavesNothingBehind) {
    RetainedStore store(1);
    store.set(message("a/b/c"));
    EXPECT_FALSE(store.erase("a/b"));
    EXPECT_FALSE(store.erase("x"));
    EXPECT_TRUE(store.erase("a/b/c"));
    EXPECT_FALSE(store.erase("a/b/c"));
    EXPECT_EQ(store.count(), 0u);
    EXPECT_EQ(store.bytes(), 0u);
    EXPECT_EQ(topics(store, "#"), Names{});
}

TEST(RetainedStoreTest, WildcardsDoNotSeeDollarTopics) {
    RetainedStore store(1);
    for (const char* topic : {"a", "a/b", "$S", "$S/x", "/a"}) store.set(message(topic));
    EXPECT_EQ(topics(store, "#"), (Names{"/a", "a", "a/b"}));
    EXPECT_EQ(topics(store, "+"), Names{"a"});
    EXPECT_EQ(topics(store, "+/#"), (Names{"/a", "a", "a/b"}));
    EXPECT_EQ(topics(store, "$S/#"), (Names{"$S", "$S/x"}));
    EXPECT_EQ(topics(store, "a/#"), (Names{"a", "a/b"}));
}

TEST(RetainedStoreTest, LimitsCountTheReplacedMessageOut) {
    RetainedStore store(1);
    RetainedLimits limits{.messages = 1, .bytes = 2000};
    store.set(message("a", std::string(1000, 'x')));
    EXPECT_FALSE(store.fits(*message("b"), limits));
    EXPECT_TRUE(store.fits(*message("a", std::string(1500, 'x')), limits));
    EXPECT_FALSE(store.fits(*message("a", std::string(2500, 'x')), limits));
}

TEST(RetainedStoreTest, ATopicOfManyLevelsCountsItsMemory) {
    RetainedStore store(1);
    store.set(message(std::string(65535, '/')));
    EXPECT_GT(store.bytes(), 65536u * 64);
    EXPECT_EQ(topics(store, "#").size(), 1u);
    EXPECT_EQ(topics(store, "//#").size(), 1u);
    EXPECT_TRUE(store.erase(std::string(65535, '/')));
}

TEST(RetainedStoreTest, ExpiredMessagesAreNotFoundAndLeaveInOrder) {
    RetainedStore store(1);
    store.set(message("late", "x", kNow + 2s));
    store.set(message("soon", "x", kNow + 1s));
    store.set(message("replaced", "x", kNow + 1s));
    store.set(message("replaced", "y"));
    EXPECT_EQ(store.next_expiry(), kNow + 1s);
    EXPECT_EQ(topics(store, "#", kNow + 1s), (Names{"late", "replaced"}));
    std::vector<MessagePtr> removed;
    size_t budget = 10;
    store.remove_expired(kNow + 1500ms, budget, removed);
    EXPECT_EQ(budget, 9u);
    ASSERT_EQ(removed.size(), 1u);
    EXPECT_EQ(removed[0]->topic, "soon");
    EXPECT_EQ(store.count(), 2u);
    EXPECT_EQ(store.next_expiry(), kNow + 2s);
}

TEST(RetainedStoreTest, WhatWasReplacedOrRemovedIsNotWaitedFor) {
    RetainedStore store(1);
    store.set(message("t", "x", kNow + 1s));
    store.set(message("t", "y", kNow + 3s));
    EXPECT_EQ(store.next_expiry(), kNow + 3s);
    store.set(message("t", "z"));
    EXPECT_EQ(store.next_expiry(), base::kNever);
    store.set(message("u", "x", kNow + 1s));
    store.erase("u");
    EXPECT_EQ(store.next_expiry(), base::kNever);
}

TEST(RetainedStoreTest, NotMoreExpireThanTheBudgetSays) {
    RetainedStore store(1);
    for (int i = 0; i < 10; ++i) {
        store.set(message(std::to_string(i), "x", kNow + std::chrono::seconds(i)));
    }
    std::vector<MessagePtr> removed;
    size_t budget = 3;
    store.remove_expired(kNow + 6s, budget, removed);
    EXPECT_EQ(budget, 0u);
    ASSERT_EQ(removed.size(), 3u);
    EXPECT_EQ(removed[2]->topic, "2");
    EXPECT_EQ(store.next_expiry(), kNow + 3s);
}

TEST(RetainedStoreTest, AgreesWithTheNaiveMatcher) {
    std::mt19937 random(11);
    const char* const kLevels[] = {"a", "b", "c", "", "$s"};
    auto levels = [&](bool filter) {
        std::string text;
        size_t count = 1 + random() % 4;
        for (size_t i = 0; i < count; ++i) {
            if (i > 0) text += '/';
            size_t pick = random() % 8;
            if (filter && pick < 3) {
                text += '+';
            } else if (filter && pick == 3) {
                return text + '#';
            } else {
                text += kLevels[random() % 5];
            }
        }
        return text.empty() ? std::string("a") : text;
    };
    RetainedStore store(5);
    std::map<std::string, bool> model;
    for (int round = 0; round < 4000; ++round) {
        std::string topic = levels(false);
        if (random() % 3 != 0) {
            store.set(message(topic));
            model[topic] = true;
        } else {
            EXPECT_EQ(store.erase(topic), model.erase(topic) == 1);
        }
        ASSERT_EQ(store.count(), model.size());
        std::string filter = levels(true);
        Names expected;
        for (const auto& [name, present] : model) {
            if (mqtt::topic_matches(filter, name)) expected.push_back(name);
        }
        ASSERT_EQ(topics(store, filter), expected) << filter;
    }
}

}  // namespace
}  // namespace pgmqtt::broker
