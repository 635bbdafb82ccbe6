#include "broker/session_changes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

namespace pgmqtt::broker {
namespace {

StoreRecord message(uint64_t id, ByteView payload = "p") {
    StoreRecord record{.kind = StoreKind::kMessage, .message_id = id};
    record.message.payload = payload;
    return record;
}

StoreRecord message_end(uint64_t id) {
    return {.kind = StoreKind::kMessageEnd, .message_id = id};
}

StoreRecord delivery(uint64_t session, uint64_t sequence, uint64_t message_id, bool sent = false) {
    StoreRecord record{.kind = StoreKind::kDelivery,
                       .session_id = session,
                       .message_id = message_id,
                       .sequence = sequence};
    record.delivery.sent = sent;
    return record;
}

StoreRecord delivery_end(uint64_t session, uint64_t sequence) {
    return {.kind = StoreKind::kDeliveryEnd, .session_id = session, .sequence = sequence};
}

StoreRecord session(StoreKind kind, uint64_t id, uint32_t expiry = 0) {
    StoreRecord record{.kind = kind, .session_id = id};
    record.session.expiry_interval = expiry;
    return record;
}

StoreRecord subscription(StoreKind kind, uint64_t session, ByteView filter,
                         mqtt::Qos qos = mqtt::Qos::k1) {
    StoreRecord record{.kind = kind, .session_id = session};
    record.subscription.filter = filter;
    record.subscription.qos = qos;
    return record;
}

StoreRecord packet(StoreKind kind, uint64_t session, uint16_t packet_id) {
    return {.kind = kind, .session_id = session, .packet_id = packet_id};
}

TEST(SessionChanges, ADeliveryEndedBeforeItWasWrittenLeavesNothing) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.add(delivery(7, 1, 1, true));
    changes.add(delivery_end(7, 1));
    changes.add(message_end(1));
    EXPECT_FALSE(changes.empty());
    SessionNetEffect net = changes.net_effect();
    EXPECT_TRUE(net.messages.empty());
    EXPECT_TRUE(net.ended_messages.empty());
    EXPECT_TRUE(net.deliveries.empty());
    EXPECT_TRUE(net.ended_deliveries.empty());
}

TEST(SessionChanges, WhatMayBeWrittenAlreadyIsRemovedAllTheSame) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.may_be_repeated();
    changes.add(delivery_end(7, 1));
    changes.add(message_end(1));
    SessionNetEffect net = changes.net_effect();
    EXPECT_EQ(net.ended_messages, std::vector<uint64_t>{1});
    ASSERT_EQ(net.ended_deliveries.size(), 1u);
    EXPECT_EQ(net.ended_deliveries[0].sequence, 1u);
    changes.clear();
    EXPECT_TRUE(changes.empty());
    changes.add(message(2));
    changes.add(message_end(2));
    EXPECT_TRUE(changes.net_effect().ended_messages.empty()) << "clear() forgets that";
}

// Its first record in this cycle is a change of state, not its beginning.
TEST(SessionChanges, ADeliveryOfAnEarlierCycleIsRemoved) {
    SessionChanges changes;
    changes.add(delivery(7, 1, 1, true));
    changes.add(delivery_end(7, 1));
    changes.add(delivery_end(7, 2));
    EXPECT_EQ(changes.net_effect().ended_deliveries.size(), 2u);
}

TEST(SessionChanges, AMessageStaysWhileADeliveryNeedsIt) {
    SessionChanges changes;
    changes.add(message(1));
    changes.add(delivery(7, 1, 1));
    changes.add(delivery(8, 5, 1));
    changes.add(delivery_end(7, 1));
    SessionNetEffect net = changes.net_effect();
    ASSERT_EQ(net.messages.size(), 1u);
    ASSERT_EQ(net.deliveries.size(), 1u);
    EXPECT_EQ(net.deliveries[0].session_id, 8u);
    EXPECT_TRUE(net.ended_deliveries.empty());
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
    changes.add(message_end(1));
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
    std::set<std::pair<uint64_t, uint16_t>> received;
    friend bool operator==(const Rows&, const Rows&) = default;

    void apply(const SessionNetEffect& net) {
        for (uint64_t id : net.ended_sessions) {
            std::erase_if(deliveries, [id](const auto& row) { return row.first.first == id; });
            std::erase_if(received, [id](const auto& row) { return row.first == id; });
        }
        for (const auto& row : net.messages) messages.try_emplace(row.id, row.message.payload);
        for (const auto& row : net.deliveries)
            deliveries[{row.session_id, row.sequence}] = {row.message_id, row.delivery.sent};
        for (const auto& row : net.ended_deliveries)
            deliveries.erase({row.session_id, row.sequence});
        for (uint64_t id : net.ended_messages) messages.erase(id);
        for (const auto& row : net.received) received.insert({row.session_id, row.packet_id});
        for (const auto& row : net.released) received.erase({row.session_id, row.packet_id});
    }
};

// What a broker with a few sessions says over some time.
std::vector<StoreRecord> stream(std::mt19937_64& dice) {
    std::vector<StoreRecord> records;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> open;
    std::map<uint64_t, int> needed;
    uint64_t sequence = 0;
    auto end = [&](auto position) {
        records.push_back(delivery_end(position->first.first, position->first.second));
        if (--needed[position->second] == 0) records.push_back(message_end(position->second));
        return open.erase(position);
    };
    for (uint64_t step = 1; step <= 200; ++step) {
        uint64_t number = dice() % 6;
        if (number < 2) {
            records.push_back(message(step));
            for (uint64_t receiver = 1; receiver <= 3; ++receiver) {
                records.push_back(delivery(receiver, ++sequence, step));
                open[{receiver, sequence}] = step;
                ++needed[step];
            }
        } else if (number < 5 && !open.empty()) {
            auto position = std::next(open.begin(), static_cast<long>(dice() % open.size()));
            auto [key, message_id] = *position;
            if (number == 2)
                records.push_back(delivery(key.first, key.second, message_id, true));
            else
                end(position);
        } else {
            auto kind = dice() % 2 == 0 ? StoreKind::kReceived : StoreKind::kReleased;
            records.push_back(packet(kind, 1 + dice() % 3, static_cast<uint16_t>(dice() % 4)));
        }
        if (step == 150) {
            records.push_back(session(StoreKind::kSessionEnd, 2));
            for (auto position = open.begin(); position != open.end();)
                position = position->first.first == 2 ? end(position) : std::next(position);
        }
    }
    return records;
}

TEST(SessionChanges, AnyCutIntoCyclesEndsInTheSameRows) {
    std::mt19937_64 dice(3);
    for (int round = 0; round < 200; ++round) {
        std::vector<StoreRecord> records = stream(dice);
        Rows one_by_one;
        Rows in_cycles;
        SessionChanges cycle;
        size_t begun = 0;
        for (size_t i = 0; i < records.size(); ++i) {
            SessionChanges one;
            one.add(records[i]);
            one_by_one.apply(one.net_effect());
            cycle.add(records[i]);
            if (dice() % 10 != 0 && i + 1 != records.size()) continue;
            in_cycles.apply(cycle.net_effect());
            cycle.clear();
            // Sometimes the answer is lost, and all of it comes again with more behind it.
            if (dice() % 4 == 0) {
                cycle.may_be_repeated();
                for (size_t again = begun; again <= i; ++again) cycle.add(records[again]);
                if (i + 1 == records.size()) in_cycles.apply(cycle.net_effect());
            } else {
                begun = i + 1;
            }
        }
        // A session that ended stays away; packets of session 2 after its end are not in question.
        std::erase_if(one_by_one.received, [](const auto& row) { return row.first == 2; });
        std::erase_if(in_cycles.received, [](const auto& row) { return row.first == 2; });
        std::erase_if(one_by_one.deliveries, [](const auto& row) { return row.first.first == 2; });
        std::erase_if(in_cycles.deliveries, [](const auto& row) { return row.first.first == 2; });
        EXPECT_EQ(one_by_one.messages, in_cycles.messages);
        EXPECT_EQ(one_by_one.deliveries, in_cycles.deliveries);
        EXPECT_EQ(one_by_one.received, in_cycles.received);
    }
}

}  // namespace
}  // namespace pgmqtt::broker
