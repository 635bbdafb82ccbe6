#include "broker/subscription_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <string>

#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

using Matches = std::vector<Subscription*>;

Matches sorted_match(SubscriptionTree& tree, base::ByteView topic) {
    Matches matches;
    tree.match(topic, matches);
    std::sort(matches.begin(), matches.end());
    return matches;
}

TEST(SubscriptionTreeTest, ExamplesOfSection47) {
    struct Row {
        const char* filter;
        const char* topic;
        bool matches;
    };
    const Row rows[] = {
        {"sport/#", "sport", true},  {"sport/#", "sport/", true},
        {"sport/+", "sport", false}, {"sport/+", "sport/", true},
        {"+/+", "/finance", true},   {"/+", "/finance", true},
        {"+", "/finance", false},    {"#", "$SYS/x", false},
        {"+/x", "$SYS/x", false},    {"$SYS/#", "$SYS/x", true},
        {"$SYS/+", "$SYS/x", true},  {"a/#", "ab", false},
        {"a//b", "a//b", true},      {"#", "/", true},
        {"+/#", "a", true},          {"a/+/#", "a", false},
        {"a/+/#", "a/b", true},      {"A", "a", false},
        {"a/$x", "a/$x", true},      {"a/+", "a/$x", true},
    };
    for (const Row& row : rows) {
        SubscriptionTree tree(1);
        Subscription subscription;
        tree.add(row.filter, subscription);
        EXPECT_EQ(!sorted_match(tree, row.topic).empty(), row.matches)
            << row.filter << " " << row.topic;
        EXPECT_EQ(mqtt::topic_matches(row.filter, row.topic), row.matches);
    }
}

std::string random_levels(std::mt19937& random, bool filter) {
    static const char* const kLevels[] = {"a", "b", "c", "", "$s", "longer than a small string"};
    std::string text;
    size_t count = 1 + random() % 5;
    for (size_t i = 0; i < count; ++i) {
        if (i > 0) text += '/';
        size_t pick = random() % 10;
        if (filter && pick < 3) {
            text += '+';
        } else if (filter && pick == 3) {
            return text + '#';
        } else {
            text += kLevels[random() % 6];
        }
    }
    return text.empty() ? "a" : text;
}

TEST(SubscriptionTreeTest, AgreesWithTheNaiveMatcherWhileFiltersComeAndGo) {
    std::mt19937 random(2024);
    SubscriptionTree tree(99);
    std::deque<std::pair<std::string, Subscription>> filters;
    size_t pairs = 0;
    for (int round = 0; round < 3000; ++round) {
        if (filters.size() < 80 || random() % 2 == 0) {
            auto& [filter, subscription] = filters.emplace_back();
            filter = random_levels(random, true);
            tree.add(filter, subscription);
        } else {
            tree.remove(filters.front().second);
            filters.pop_front();
        }
        std::string topic = random_levels(random, false);
        Matches expected;
        for (auto& [filter, subscription] : filters) {
            if (mqtt::topic_matches(filter, topic)) expected.push_back(&subscription);
            ++pairs;
        }
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(sorted_match(tree, topic), expected) << topic;
    }
    EXPECT_GE(pairs, 100000u);
    for (auto& entry : filters) tree.remove(entry.second);
    EXPECT_EQ(tree.node_count(), 1u);  // the root: nothing is left behind
}

TEST(SubscriptionTreeTest, ManySubscribersOfOneFilterLeaveInAnyOrder) {
    std::mt19937 random(5);
    SubscriptionTree tree(3);
    std::vector<Subscription> subscriptions(1000);
    for (Subscription& subscription : subscriptions) tree.add("a/+", subscription);
    std::vector<Subscription*> order;
    for (Subscription& subscription : subscriptions) order.push_back(&subscription);
    std::shuffle(order.begin(), order.end(), random);
    for (size_t left = order.size(); left > 0; --left) {
        ASSERT_EQ(sorted_match(tree, "a/b").size(), left);
        tree.remove(*order[left - 1]);
    }
    EXPECT_EQ(tree.node_count(), 1u);
}

TEST(SubscriptionTreeTest, AThousandLevelsMatch) {
    std::string topic;
    std::string plus;
    for (int i = 0; i < 1000; ++i) {
        topic += i == 0 ? "l" : "/l";
        plus += i == 0 ? "+" : "/+";
    }
    SubscriptionTree tree(1);
    Subscription exact, wild, hash;
    tree.add(topic, exact);
    tree.add(plus, wild);
    tree.add(plus.substr(0, plus.size() - 1) + "#", hash);
    EXPECT_EQ(sorted_match(tree, topic).size(), 3u);
}

TEST(SubscriptionTreeTest, ATopicOfOnlySlashesCostsWhatTheFiltersCost) {
    SubscriptionTree tree(1);
    std::deque<Subscription> subscriptions;
    for (int i = 0; i < 100; ++i)
        tree.add("a/b/" + std::to_string(i), subscriptions.emplace_back());
    tree.add("+/+/+", subscriptions.emplace_back());
    tree.add("#", subscriptions.emplace_back());
    std::string topic(mqtt::kMaxTopicBytes, '/');
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10000; ++i) ASSERT_EQ(sorted_match(tree, topic).size(), 1u);
    // Splitting all of it each time would take minutes under the sanitizers.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(SubscriptionTreeTest, AFilterOfOnlySlashesIsNoDangerToTheStack) {
    SubscriptionTree tree(1);
    std::string slashes(mqtt::kMaxTopicBytes, '/');
    Subscription subscription;
    tree.add(slashes, subscription);
    EXPECT_EQ(sorted_match(tree, slashes).size(), 1u);
    EXPECT_EQ(sorted_match(tree, slashes.substr(1)).size(), 0u);
    tree.remove(subscription);
    EXPECT_EQ(tree.node_count(), 1u);
}

TEST(SubscriptionTreeTest, AFullBinaryTreeOfWildcardsVisitsEachNodeOnce) {
    SubscriptionTree tree(1);
    std::deque<Subscription> subscriptions;
    for (unsigned bits = 0; bits < 4096; ++bits) {
        std::string filter;
        for (int level = 0; level < 12; ++level) {
            if (level > 0) filter += '/';
            filter += (bits >> level & 1) != 0 ? "+" : "x";
        }
        tree.add(filter, subscriptions.emplace_back());
    }
    EXPECT_EQ(sorted_match(tree, "x/x/x/x/x/x/x/x/x/x/x/x").size(), 4096u);
}

}  // namespace
}  // namespace pgmqtt::broker
