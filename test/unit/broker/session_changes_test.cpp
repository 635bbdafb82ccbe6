#include "broker/session_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "unit/broker/store_stream.h"

namespace pgmqtt::broker {
namespace {

TEST(SessionChanges, ADeliveryEndedBeforeItWasWrittenLeavesNothing) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.add(delivery(7, 1, 1, true));
    changes.add(delivery_end(7, 1, 1));
    EXPECT_FALSE(changes.empty());
    SessionNetEffect net = changes.net_effect();
    EXPECT_TRUE(net.messages.empty());
    EXPECT_TRUE(net.deliveries.empty());
    EXPECT_TRUE(net.ended_deliveries.empty());
    EXPECT_EQ(net.awaited(Durability::kDurable), Durability::kUnlogged);
}

TEST(SessionChanges, AMessageWithoutADeliveryIsNotWritten) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(message(2));
    changes.add(delivery(7, 1, 2));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.messages.size(), 1u);
    EXPECT_EQ(net.messages[0].id, 2u);
}

TEST(SessionChanges, WhatMayBeWrittenAlreadyIsRemovedAllTheSame) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.may_be_repeated();
    changes.add(delivery_end(7, 1, 1));
    SessionNetEffect net = changes.net_effect();
    EXPECT_TRUE(net.messages.empty());
    ASSERT_EQ(net.ended_deliveries.size(), 1u);
    EXPECT_EQ(net.ended_deliveries[0].sequence, 1u);
    changes.clear();
    EXPECT_TRUE(changes.empty());
    changes.add(message(2));
    changes.add(delivery(7, 2, 2));
    changes.add(delivery_end(7, 2, 2));
    EXPECT_TRUE(changes.net_effect().ended_deliveries.empty()) << "clear() forgets that";
}

// Its first record in this cycle is a change of state, not its beginning.
TEST(SessionChanges, ADeliveryOfAnEarlierCycleIsRemoved) {
    SessionChanges changes;
    changes.add(delivery(7, 1, 1, true));
    changes.add(delivery_end(7, 1, 1));
    changes.add(delivery_end(7, 2, 1));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.ended_deliveries.size(), 2u);
    EXPECT_EQ(net.ended_deliveries[0].was, 1u);
    EXPECT_EQ(net.ended_deliveries[1].was, 1u);
}

TEST(SessionChanges, AMessageStaysWhileADeliveryNeedsIt) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.add(delivery(8, 5, 1));
    changes.add(delivery_end(7, 1, 1));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.messages.size(), 1u);
    ASSERT_EQ(net.deliveries.size(), 1u);
    EXPECT_EQ(net.deliveries[0].session_id, 8u);
    EXPECT_EQ(net.deliveries[0].was, 0u);
    EXPECT_TRUE(net.ended_deliveries.empty());
}

TEST(SessionChanges, ACopySaysWhereItsDeliveriesWere) {
    SessionChanges changes;
    changes.add(copy(20, 10));
    changes.add(delivery(7, 1, 20));
    changes.add(delivery(8, 1, 20));
    changes.add(delivery_end(8, 1, 20));
    changes.add(copy(21, 11));
    changes.add(delivery(9, 1, 21));
    changes.add(delivery_end(9, 1, 21));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.messages.size(), 1u) << "nothing needs 21";
    EXPECT_EQ(net.messages[0].id, 20u);
    EXPECT_EQ(net.messages[0].source_id, 10u);
    ASSERT_EQ(net.deliveries.size(), 1u);
    EXPECT_EQ(net.deliveries[0].message_id, 20u);
    EXPECT_EQ(net.deliveries[0].was, 10u);
    ASSERT_EQ(net.ended_deliveries.size(), 2u);
    EXPECT_EQ(net.ended_deliveries[0].was, 10u);
    EXPECT_EQ(net.ended_deliveries[1].was, 11u);
}

TEST(SessionChanges, ACopyOfWhatIsNewHereIsNewItself) {
    SessionChanges changes;
    changes.add(message(1, "one"));
    changes.add(delivery(7, 1, 1));
    changes.add(copy(2, 1));
    changes.add(delivery(7, 1, 2));
    changes.add(copy(20, 10));
    changes.add(copy(30, 20));
    changes.add(delivery(8, 1, 30));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.messages.size(), 2u);
    EXPECT_EQ(net.messages[0].id, 2u);
    EXPECT_EQ(net.messages[0].source_id, 0u);
    EXPECT_EQ(net.messages[0].message.payload, "one");
    EXPECT_EQ(net.messages[1].id, 30u);
    EXPECT_EQ(net.messages[1].source_id, 10u);
    ASSERT_EQ(net.deliveries.size(), 2u);
    EXPECT_EQ(net.deliveries[0].was, 0u);
    EXPECT_EQ(net.deliveries[1].was, 10u);
}

TEST(SessionChanges, OnlyWhatSomebodyWaitsForIsAwaited) {
    auto awaited = [](std::vector<StoreRecord> records, Durability of_state) {
        SessionChanges changes;
        for (const StoreRecord& record : records) changes.add(record);
        return changes.net_effect().awaited(of_state);
    };
    StoreRecord asynchronous = message(1);
    asynchronous.durability = Durability::kAsync;
    StoreRecord unanswered = delivery(7, 1, 1);
    unanswered.durability = Durability::kAsync;
    StoreRecord unlogged = message(1);
    unlogged.durability = Durability::kUnlogged;
    StoreRecord unlogged_delivery = delivery(7, 1, 1);
    unlogged_delivery.durability = Durability::kUnlogged;
    constexpr Durability kFlush = Durability::kDurable;
    constexpr Durability kWrite = Durability::kAsync;
    constexpr Durability kNothing = Durability::kUnlogged;
    EXPECT_EQ(awaited({message(1), delivery(7, 1, 1)}, Durability::kDurable), kFlush);
    EXPECT_EQ(awaited({message(1), delivery(7, 1, 1)}, Durability::kAsync), kFlush);
    EXPECT_EQ(awaited({asynchronous, unanswered}, Durability::kDurable), kWrite);
    EXPECT_EQ(awaited({asynchronous, unanswered}, Durability::kUnlogged), kWrite);
    EXPECT_EQ(awaited({unlogged, unlogged_delivery}, Durability::kUnlogged), kNothing);
    EXPECT_EQ(awaited({unlogged, unlogged_delivery}, Durability::kDurable), kNothing);
    EXPECT_EQ(awaited({delivery_end(7, 1, 1)}, Durability::kDurable), kNothing);
    EXPECT_EQ(awaited({delivery(7, 1, 1, true)}, Durability::kDurable), kFlush);
    EXPECT_EQ(awaited({delivery(7, 1, 1, true)}, Durability::kAsync), kWrite);
    EXPECT_EQ(awaited({session(StoreKind::kSession, 7)}, Durability::kDurable), kFlush);
    EXPECT_EQ(awaited({session(StoreKind::kSession, 7)}, Durability::kUnlogged), kWrite);
    EXPECT_EQ(awaited({packet(StoreKind::kReleased, 7, 1)}, Durability::kDurable), kFlush);
}

TEST(SessionChanges, TheLastStateCounts) {
    SessionChanges changes;
    changes.add(session(StoreKind::kSession, 7, 10));
    changes.add(session(StoreKind::kSession, 7, 20));
    changes.add(subscription(StoreKind::kSubscribe, 7, "a", mqtt::Qos::k0));
    changes.add(subscription(StoreKind::kUnsubscribe, 7, "a"));
    changes.add(subscription(StoreKind::kSubscribe, 7, "a", mqtt::Qos::k2));
    changes.add(subscription(StoreKind::kSubscribe, 8, "a"));
    changes.add(subscription(StoreKind::kUnsubscribe, 8, "a"));
    changes.add(packet(StoreKind::kReceived, 7, 1));
    changes.add(packet(StoreKind::kReleased, 7, 1));
    changes.add(packet(StoreKind::kReceived, 7, 1));
    changes.add(packet(StoreKind::kReceived, 7, 2));
    changes.add(packet(StoreKind::kReleased, 7, 2));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.sessions.size(), 1u);
    EXPECT_EQ(net.sessions[0].session.expiry_interval, 20u);
    ASSERT_EQ(net.subscriptions.size(), 1u);
    EXPECT_EQ(net.subscriptions[0].subscription.qos, mqtt::Qos::k2);
    ASSERT_EQ(net.unsubscribed.size(), 1u);
    EXPECT_EQ(net.unsubscribed[0].session_id, 8u);
    ASSERT_EQ(net.received.size(), 1u);
    EXPECT_EQ(net.received[0].packet_id, 1);
    ASSERT_EQ(net.released.size(), 1u);
    EXPECT_EQ(net.released[0].packet_id, 2);
}

TEST(SessionChanges, ASessionTakesAllItHasWithIt) {
    SessionChanges changes;
    changes.add(session(StoreKind::kSession, 7));
    changes.add(subscription(StoreKind::kSubscribe, 7, "a"));
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.add(packet(StoreKind::kReceived, 7, 1));
    changes.add(session(StoreKind::kSessionEnd, 7));
    SessionNetEffect net = changes.net_effect();
    EXPECT_EQ(net.ended_sessions, std::vector<uint64_t>{7});
    EXPECT_TRUE(net.sessions.empty());
    EXPECT_TRUE(net.subscriptions.empty());
    EXPECT_TRUE(net.messages.empty());
    EXPECT_TRUE(net.deliveries.empty());
    EXPECT_TRUE(net.received.empty());
}

// --- any cut of a stream of records into cycles ends in the same rows

struct Rows {
    std::map<uint64_t, std::string> messages;
    std::map<std::pair<uint64_t, uint64_t>, std::pair<uint64_t, bool>> deliveries;
    std::map<std::pair<uint64_t, uint16_t>, uint64_t> received;

    void apply(const SessionNetEffect& net) {
        for (uint64_t id : net.ended_sessions) {
            std::erase_if(deliveries, [id](const auto& row) { return row.first.first == id; });
            std::erase_if(received, [id](const auto& row) { return row.first.first == id; });
        }
        for (const auto& row : net.messages) {
            bool is_copy = row.source_id != 0;
            messages[row.id] = is_copy ? messages.at(row.source_id) : row.message.payload;
        }
        for (const auto& row : net.deliveries)
            deliveries[{row.session_id, row.sequence}] = {row.message_id, row.delivery.sent};
        for (const auto& row : net.ended_deliveries)
            deliveries.erase({row.session_id, row.sequence});
        for (const auto& row : net.received) received[{row.session_id, row.packet_id}] = row.id;
        for (const auto& row : net.released) received.erase({row.session_id, row.packet_id});
    }

    bool has_all_messages() const {
        return std::all_of(deliveries.begin(), deliveries.end(),
                           [this](const auto& row) { return messages.contains(row.second.first); });
    }
};

TEST(SessionChanges, AnyCutIntoCyclesEndsInTheSameRows) {
    std::mt19937_64 dice(3);
    for (uint64_t round = 0; round < 200; ++round) {
        StoreStream stream(round);
        std::vector<Batch> batches;
        for (int i = 0; i < 200; ++i)
            batches.push_back(i == 150 ? stream.end_session(2) : stream.next());
        Rows one_by_one;
        Rows in_cycles;
        SessionChanges cycle;
        size_t begun = 0;
        auto add = [](SessionChanges& changes, const Batch& batch) {
            for (const StoreRecord& record : batch) changes.add(record);
        };
        for (size_t i = 0; i < batches.size(); ++i) {
            SessionChanges one;
            add(one, batches[i]);
            one_by_one.apply(one.net_effect());
            add(cycle, batches[i]);
            if (dice() % 10 != 0 && i + 1 != batches.size()) continue;
            in_cycles.apply(cycle.net_effect());
            cycle.clear();
            // Sometimes the answer is lost, and all of it comes again with more behind it.
            if (dice() % 4 == 0) {
                cycle.may_be_repeated();
                for (size_t again = begun; again <= i; ++again) add(cycle, batches[again]);
                if (i + 1 == batches.size()) in_cycles.apply(cycle.net_effect());
            } else {
                begun = i + 1;
            }
        }
        EXPECT_EQ(one_by_one.deliveries, in_cycles.deliveries);
        EXPECT_EQ(one_by_one.received, in_cycles.received);
        EXPECT_TRUE(in_cycles.has_all_messages());
    }
}

}  // namespace
}  // namespace pgmqtt::broker
