#include "broker/queue_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace pgmqtt::broker {
namespace {

using Kind = QueueEntry::Kind;

QueueEntry delivery(uint64_t session, uint64_t sequence, uint64_t message, Place place = 1) {
    QueueEntry entry{.kind = Kind::kDelivery,
                     .session_id = session,
                     .number = sequence,
                     .message_id = message,
                     .place = place};
    entry.delivery.bytes = 100;
    return entry;
}

QueueEntry other(Kind kind, uint64_t session, uint64_t number, uint64_t message = 0) {
    return {.kind = kind, .session_id = session, .number = number, .message_id = message};
}

void expect_same(const QueueEntry& a, const QueueEntry& b) {
    ASSERT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.session_id, b.session_id);
    EXPECT_EQ(a.number, b.number);
    EXPECT_EQ(a.message_id, b.message_id);
    if (a.kind != Kind::kDelivery) return;
    EXPECT_EQ(a.place, b.place);
    EXPECT_EQ(a.delivery.state, b.delivery.state);
    EXPECT_EQ(a.delivery.sent, b.delivery.sent);
    EXPECT_EQ(a.delivery.qos, b.delivery.qos);
    EXPECT_EQ(a.delivery.retain, b.delivery.retain);
    EXPECT_EQ(a.delivery.bytes, b.delivery.bytes);
    EXPECT_EQ(a.delivery.expires_at, b.delivery.expires_at);
    EXPECT_EQ(a.delivery.subscription_identifiers, b.delivery.subscription_identifiers);
}

// Near the value before, anywhere, or at an end.
uint64_t number_near(uint64_t last, std::mt19937_64& dice) {
    switch (dice() % 4) {
        case 0:
            return last + dice() % 5 - 2;
        case 1:
            return dice();
        case 2:
            return dice() % 2 == 0 ? 0 : UINT64_MAX;
        default:
            return last;
    }
}

QueueEntry random_entry(const QueueEntry& last, std::mt19937_64& dice) {
    static const std::string identifiers("\0\0\0\1\0\0\0\2", 8);
    QueueEntry entry = last;
    entry.kind = static_cast<Kind>(1 + dice() % 4);
    entry.session_id = number_near(last.session_id, dice);
    entry.number = number_near(last.number, dice);
    if (entry.kind >= Kind::kReceived) entry.number %= 65536;
    entry.message_id = number_near(last.message_id, dice);
    entry.place = number_near(last.place, dice);
    StoredDelivery& delivery = entry.delivery;
    delivery.state = static_cast<DeliveryState>(1 + dice() % 2);
    delivery.sent = dice() % 2 == 0;
    delivery.retain = dice() % 2 == 0;
    delivery.qos = static_cast<mqtt::Qos>(dice() % 3);
    delivery.bytes = static_cast<uint32_t>(number_near(delivery.bytes, dice));
    if (dice() % 4 == 0)
        delivery.expires_at =
            base::WallTime(std::chrono::microseconds(static_cast<int64_t>(number_near(0, dice))));
    delivery.subscription_identifiers = ByteView(identifiers).substr(0, dice() % 3 * 4);
    return entry;
}

TEST(QueueLog, EntriesComeBack) {
    std::mt19937_64 dice(1);
    for (int round = 0; round < 300; ++round) {
        QueueWriter writer;
        std::vector<QueueEntry> entries;
        for (uint64_t count = dice() % 40; count > 0; --count) {
            entries.push_back(random_entry(entries.empty() ? QueueEntry{} : entries.back(), dice));
            writer.add(entries.back());
        }
        EXPECT_EQ(writer.empty(), entries.empty());
        std::vector<char> exact(writer.bytes().begin(), writer.bytes().end());
        QueueReader reader({exact.data(), exact.size()});
        QueueEntry entry;
        for (const QueueEntry& wanted : entries) {
            ASSERT_TRUE(reader.next(entry));
            expect_same(entry, wanted);
        }
        EXPECT_FALSE(reader.next(entry));
        EXPECT_TRUE(reader.ok());
    }
}

TEST(QueueLog, EntriesAreSmall) {
    QueueWriter writer;
    constexpr uint64_t kCount = 1000;
    constexpr uint64_t kPerPage = 60;
    for (uint64_t i = 0; i < kCount; ++i) {
        Place place = (i / kPerPage) << 16 | (i % kPerPage + 1);
        writer.add(delivery(1'700'000'000'000'000, i + 1, 1'700'000'000'000'001 + i * 3, place));
    }
    EXPECT_LT(writer.bytes().size(), kCount * 4);
    writer.clear();
    for (uint64_t i = 0; i < kCount; ++i)
        writer.add(other(Kind::kEnd, 1'700'000'000'000'000, i + 1, 1'700'000'000'000'001 + i * 3));
    EXPECT_LT(writer.bytes().size(), kCount * 4);
}

TEST(QueueLog, MalformedBytesAreFound) {
    std::mt19937_64 dice(2);
    QueueWriter writer;
    QueueEntry last;
    for (int i = 0; i < 50; ++i) writer.add(last = random_entry(last, dice));
    std::string good(writer.bytes());
    for (int round = 0; round < 20000; ++round) {
        std::vector<char> bytes(good.begin(), good.end());
        for (uint64_t n = 1 + dice() % 3; n > 0; --n)
            bytes[dice() % bytes.size()] = static_cast<char>(dice());
        bytes.resize(dice() % (bytes.size() + 1));
        QueueReplay replay;
        replay.add({bytes.data(), bytes.size()});
        size_t count = 0;
        replay.for_each([&count](const QueueEntry&) { ++count; });
        EXPECT_LE(count, 50u);
    }
    EXPECT_FALSE(QueueReplay().add("\x02"));
    EXPECT_FALSE(QueueReplay().add("\x01\x01"));
    EXPECT_TRUE(QueueReplay().add(""));
}

std::vector<QueueEntry> replayed(const std::vector<std::vector<QueueEntry>>& runs) {
    QueueReplay replay;
    for (const auto& run : runs) {
        QueueWriter writer;
        for (const QueueEntry& entry : run) writer.add(entry);
        EXPECT_TRUE(replay.add(writer.bytes()));
    }
    std::vector<QueueEntry> left;
    replay.for_each([&left](const QueueEntry& entry) { left.push_back(entry); });
    return left;
}

TEST(QueueReplay, WhatIsNotOverIsLeft) {
    auto left = replayed({{delivery(8, 1, 10), delivery(7, 1, 10), delivery(7, 2, 11),
                           other(Kind::kReceived, 7, 5, 12)},
                          {other(Kind::kEnd, 7, 1, 10), delivery(7, 3, 13)},
                          {other(Kind::kReleased, 7, 5, 12), other(Kind::kReceived, 7, 6, 14),
                           delivery(7, 2, 15, 9)},
                          {other(Kind::kEnd, 9, 1, 1), other(Kind::kEnd, 7, 77, 1)}});
    ASSERT_EQ(left.size(), 4u);
    expect_same(left[0], delivery(7, 2, 15, 9));
    expect_same(left[1], delivery(7, 3, 13));
    expect_same(left[2], other(Kind::kReceived, 7, 6, 14));
    expect_same(left[3], delivery(8, 1, 10));
}

TEST(QueueReplay, WhatComesAgainCountsOnce) {
    auto left = replayed({{delivery(7, 1, 10), delivery(7, 2, 10), delivery(7, 3, 10)},
                          {other(Kind::kEnd, 7, 2, 10)},
                          {delivery(7, 1, 10), delivery(7, 2, 10), delivery(7, 3, 10)},
                          {other(Kind::kEnd, 7, 2, 10), other(Kind::kEnd, 7, 2, 10)}});
    ASSERT_EQ(left.size(), 2u);
    EXPECT_EQ(left[0].number, 1u);
    EXPECT_EQ(left[1].number, 3u);
}

TEST(QueueReplay, LongQueuesForgetWhatIsOver) {
    std::vector<std::vector<QueueEntry>> runs(3);
    for (uint64_t i = 1; i <= 10000; ++i) runs[0].push_back(delivery(7, i, i));
    for (uint64_t i = 1; i <= 10000; ++i)
        if (i % 100 != 0) runs[1].push_back(other(Kind::kEnd, 7, i, i));
    runs[2] = {delivery(7, 150, 150), delivery(7, 200, 201)};
    auto left = replayed(runs);
    ASSERT_EQ(left.size(), 101u);
    EXPECT_EQ(left[1].number, 150u);
    EXPECT_EQ(left[2].message_id, 201u);
}

// What is moved out of an old segment stands behind what is younger.
TEST(QueueReplay, OrderComesFromTheSequenceWhateverStandsBehindWhat) {
    std::mt19937_64 dice(3);
    for (int round = 0; round < 50; ++round) {
        std::map<uint64_t, uint64_t> wanted;
        std::vector<std::vector<QueueEntry>> runs(100);
        for (auto& run : runs) {
            uint64_t sequence = 1 + dice() % 2000;
            for (uint64_t count = dice() % 50; count > 0; --count, sequence += 1 + dice() % 3) {
                if (dice() % 3 == 0) {
                    run.push_back(other(Kind::kEnd, 7, sequence));
                    wanted.erase(sequence);
                } else {
                    run.push_back(delivery(7, sequence, dice()));
                    wanted[sequence] = run.back().message_id;
                }
            }
        }
        auto left = replayed(runs);
        ASSERT_EQ(left.size(), wanted.size());
        auto next = wanted.begin();
        for (const QueueEntry& entry : left) {
            EXPECT_EQ(entry.number, next->first);
            EXPECT_EQ(entry.message_id, next++->second);
        }
    }
}

// Of one session, in the order of writing.
std::chrono::steady_clock::duration time_of_replay(const std::vector<uint64_t>& sequences) {
    QueueWriter writer;
    for (uint64_t sequence : sequences) writer.add(delivery(7, sequence, sequence));
    auto start = std::chrono::steady_clock::now();
    QueueReplay replay;
    EXPECT_TRUE(replay.add(writer.bytes()));
    size_t left = 0;
    replay.for_each([&left](const QueueEntry&) { ++left; });
    EXPECT_EQ(left, sequences.size());
    return std::chrono::steady_clock::now() - start;
}

// It held up a start for minutes: each moved entry pushed all younger ones along.
TEST(QueueReplay, TheOrderOfWritingCostsLittle) {
    constexpr uint64_t kCount = 200'000;
    std::vector<uint64_t> ascending;
    for (uint64_t i = 1; i <= kCount; ++i) ascending.push_back(i);
    std::vector<uint64_t> moved = ascending;
    std::rotate(moved.begin(), moved.begin() + kCount / 2, moved.end());
    std::vector<uint64_t> descending(ascending.rbegin(), ascending.rend());
    auto usual = time_of_replay(ascending);
    EXPECT_LT(time_of_replay(moved), 50 * usual);
    EXPECT_LT(time_of_replay(descending), 50 * usual);
}

}  // namespace
}  // namespace pgmqtt::broker
