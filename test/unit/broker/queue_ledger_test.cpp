#include "broker/queue_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "broker/queue_log.h"
#include "broker/session_changes.h"
#include "unit/broker/store_stream.h"

namespace pgmqtt::broker {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;

TEST(QueueLedger, ASegmentIsDrainedWhenNothingOfItIsLeft) {
    QueueLedger ledger;
    ledger.begin_segment(0);
    ledger.add_id(10);
    ledger.delivery(7, 1, 0, 10);
    ledger.delivery(8, 1, 0, 10);
    ledger.begin_segment(1);
    ledger.add_id(20);
    ledger.delivery(7, 2, 0, 20);
    EXPECT_EQ(ledger.drained(), 0u);
    ledger.delivery_end(7, 1, 10);
    ledger.delivery_end(7, 2, 20);
    EXPECT_EQ(ledger.drained(), 0u);
    ledger.delivery_end(8, 1, 10);
    EXPECT_EQ(ledger.drained(), 1u) << "the active one stays";
    ledger.begin_segment(2);
    EXPECT_EQ(ledger.drained(), 2u);
    ledger.drop_oldest(2);
    ASSERT_EQ(ledger.segments().size(), 1u);
    EXPECT_EQ(ledger.active().slot, 2);
    EXPECT_FALSE(ledger.in_doubt());
}

TEST(QueueLedger, OldestFirst) {
    QueueLedger ledger;
    for (int slot = 0; slot < 3; ++slot) {
        ledger.begin_segment(slot);
        ledger.add_id(static_cast<uint64_t>(slot) + 1);
        ledger.delivery(7, static_cast<uint64_t>(slot) + 1, 0, static_cast<uint64_t>(slot) + 1);
    }
    ledger.delivery_end(7, 2, 2);
    EXPECT_EQ(ledger.drained(), 0u);
    ledger.delivery_end(7, 1, 1);
    EXPECT_EQ(ledger.drained(), 2u);
}

TEST(QueueLedger, ADeliveryMovesItsCount) {
    QueueLedger ledger;
    ledger.begin_segment(0);
    ledger.add_id(10);
    ledger.delivery(7, 1, 0, 10);
    ledger.received(7, 5, 11);
    ledger.add_id(11);
    ledger.begin_segment(1);
    ledger.delivery(7, 1, 10, 10);
    EXPECT_EQ(ledger.segments()[0].live, 2u) << "a change of state is no second delivery";
    ledger.add_id(20);
    ledger.delivery(7, 1, 10, 20);
    ledger.received(7, 5, 21);
    ledger.add_id(21);
    EXPECT_EQ(ledger.drained(), 1u);
    EXPECT_EQ(ledger.live(), 2u);
    ledger.released(7, 5);
    ledger.delivery_end(7, 1, 20);
    EXPECT_EQ(ledger.live(), 0u);
    EXPECT_FALSE(ledger.in_doubt());
}

TEST(QueueLedger, ASessionTakesItsCountsWithIt) {
    QueueLedger ledger;
    ledger.begin_segment(0);
    ledger.add_id(12);
    ledger.delivery(7, 1, 0, 10);
    ledger.delivery(8, 1, 0, 10);
    ledger.received(7, 1, 12);
    ledger.begin_segment(1);
    ledger.add_id(20);
    ledger.delivery(7, 2, 0, 20);
    ledger.session_end(7);
    EXPECT_EQ(ledger.live(), 1u);
    ledger.session_end(7);
    EXPECT_EQ(ledger.live(), 1u);
    EXPECT_FALSE(ledger.in_doubt());
}

TEST(QueueLedger, WhatWasNeverThereIsADoubt) {
    QueueLedger ledger;
    ledger.begin_segment(0);
    ledger.add_id(10);
    ledger.delivery(7, 1, 0, 10);
    ledger.delivery_end(7, 1, 10);
    EXPECT_FALSE(ledger.in_doubt());
    ledger.delivery_end(7, 1, 10);
    EXPECT_TRUE(ledger.in_doubt());
    EXPECT_EQ(ledger.live(), 0u);
}

TEST(QueueLedger, SegmentsGrowWithWhatIsLive) {
    QueueLedger ledger;
    EXPECT_TRUE(ledger.wants_new_segment());
    ledger.begin_segment(0);
    ledger.add_id(1);
    ledger.delivery(7, 1, 0, 1);
    ledger.wrote(15 * kMegabyte);
    EXPECT_FALSE(ledger.wants_new_segment());
    ledger.wrote(kMegabyte);
    EXPECT_TRUE(ledger.wants_new_segment());
    ledger.wrote(200 * kMegabyte);
    ledger.begin_segment(1);
    ledger.wrote(40 * kMegabyte);
    EXPECT_FALSE(ledger.wants_new_segment());
}

TEST(QueueLedger, OneStuckDeliveryIsToBeMoved) {
    QueueLedger ledger;
    ledger.begin_segment(0);
    ledger.add_id(100);
    for (uint64_t i = 1; i <= 100; ++i) ledger.delivery(7, i, 0, i);
    ledger.wrote(60 * kMegabyte);
    ledger.begin_segment(1);
    for (uint64_t i = 2; i <= 100; ++i) ledger.delivery_end(7, i, i);
    EXPECT_EQ(ledger.wants_moved(), 0u) << "not that much is over";
    ledger.wrote(10 * kMegabyte);
    EXPECT_EQ(ledger.wants_moved(), 100u);
    ledger.moved(99);
    EXPECT_EQ(ledger.drained(), 0u);
    ledger.moved(100);
    EXPECT_EQ(ledger.drained(), 1u);
}

// --- with the log itself: what the counts say is what is left when it is read again

struct Log {
    QueueLedger ledger;
    std::map<int, std::vector<std::string>> runs;  // by slot
    int next_slot = 0;

    void write(const SessionNetEffect& net) {
        if (ledger.empty() || runs[ledger.active().slot].size() >= 5)
            ledger.begin_segment(next_slot++);
        QueueWriter writer;
        for (const auto& row : net.messages) ledger.add_id(row.id);
        for (const auto& row : net.received) {
            ledger.add_id(row.id);
            ledger.received(row.session_id, row.packet_id, row.id);
            writer.add({QueueEntry::Kind::kReceived, row.session_id, row.packet_id, row.id});
        }
        for (const auto& row : net.released) {
            ledger.released(row.session_id, row.packet_id);
            writer.add({QueueEntry::Kind::kReleased, row.session_id, row.packet_id, row.id});
        }
        for (const auto& row : net.deliveries) {
            ledger.delivery(row.session_id, row.sequence, row.was, row.message_id);
            writer.add({QueueEntry::Kind::kDelivery, row.session_id, row.sequence, row.message_id});
        }
        for (const auto& row : net.ended_deliveries) {
            ledger.delivery_end(row.session_id, row.sequence, row.was);
            writer.add({QueueEntry::Kind::kEnd, row.session_id, row.sequence, row.message_id});
        }
        runs[ledger.active().slot].emplace_back(writer.bytes());
        for (uint64_t id : net.ended_sessions) ledger.session_end(id);
        for (const auto& row : net.moved) ledger.moved(row.up_to);
        for (size_t i = ledger.drained(); i > 0; --i) {
            runs.erase(ledger.segments().front().slot);
            ledger.drop_oldest(1);
        }
    }

    // Identifiers only of sessions that are there.
    uint64_t left(const std::set<uint64_t>& ended) const {
        QueueReplay replay;
        for (const auto& segment : ledger.segments()) {
            auto found = runs.find(segment.slot);
            if (found == runs.end()) continue;
            for (const std::string& run : found->second) EXPECT_TRUE(replay.add(run));
        }
        uint64_t count = 0;
        replay.for_each([&](const QueueEntry& entry) {
            bool gone =
                entry.kind == QueueEntry::Kind::kReceived && ended.contains(entry.session_id);
            count += !gone;
        });
        return count;
    }
};

TEST(QueueLedger, TheCountsAreThoseOfTheLog) {
    size_t most_segments = 0;
    for (uint64_t seed = 0; seed < 100; ++seed) {
        StoreStream stream(seed);
        Log log;
        std::set<uint64_t> ended;
        std::mt19937_64 dice(seed);
        SessionChanges cycle;
        auto add = [&cycle](const Batch& batch) {
            for (const StoreRecord& record : batch) cycle.add(record);
        };
        for (int i = 0; i < 400; ++i) {
            add(i % 97 == 96 ? stream.move_all() : stream.next());
            if (i == 250) add(stream.end_session(2));
            if (i == 250) ended.insert(2);
            if (dice() % 3 != 0 && i != 250) continue;
            log.write(cycle.net_effect());
            cycle.clear();
            most_segments = std::max(most_segments, log.ledger.segments().size());
            ASSERT_FALSE(log.ledger.in_doubt()) << "seed " << seed << ", step " << i;
            ASSERT_EQ(log.ledger.live(), log.left(ended)) << "seed " << seed << ", step " << i;
        }
    }
    EXPECT_GT(most_segments, 3u);
    EXPECT_LT(most_segments, 30u);
}

}  // namespace
}  // namespace pgmqtt::broker
