// The tables of the store worker as maps: what a restart would find. Strict about the log: nothing
// refers to what is not there, or was cleaned away.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/batch.h"
#include "broker/broker.h"

namespace pgmqtt::broker {

class FakeStore {
   public:
    // Writing a batch twice changes nothing.
    void apply(ByteView batch) {
        BatchReader reader(batch);
        StoreRecord record;
        while (reader.next(record)) apply(record);
        ASSERT_TRUE(reader.ok());
        forget_unused();
    }

    void load_into(Broker& broker, Now now) const {
        for (const auto& [topic, bytes] : retained_) broker.load_retained(read(bytes).message, now);
        for (const auto& [id, bytes] : sessions_) broker.load(read(bytes), now);
        for (const auto& [key, bytes] : subscriptions_) broker.load(read(bytes), now);
        // In any order.
        for (auto entry = deliveries_.rbegin(); entry != deliveries_.rend(); ++entry) {
            broker.load(read(entry->second), now);
        }
        for (const auto& [key, bytes] : received_) broker.load(read(bytes), now);
        broker.loaded(now);
    }

    FetchedRecord fetch(const FetchRecord& wanted) const {
        auto found = messages_.find(wanted.message_id);
        if (found == messages_.end()) return {.message_id = wanted.message_id, .message = {}};
        EXPECT_EQ(is_unlogged(read(found->second)), wanted.durability == Durability::kUnlogged);
        return {wanted.message_id, true, read(found->second).message};
    }

    // The last id in the log.
    uint64_t last_id() const { return last_id_; }
    // As by a DBA.
    void remove_messages() { messages_.clear(); }
    // Resent batches may refer to what has ended since.
    void expect_repetition() { strict_ = false; }

    size_t sessions() const { return sessions_.size(); }
    size_t subscriptions() const { return subscriptions_.size(); }
    size_t messages() const { return messages_.size(); }
    size_t deliveries() const { return deliveries_.size(); }
    size_t received() const { return received_.size(); }
    size_t retained() const { return retained_.size(); }
    size_t copies() const { return copies_; }
    size_t moves() const { return moves_; }
    size_t written_messages() const { return written_messages_; }
    bool empty() const {
        return sessions_.empty() && subscriptions_.empty() && messages_.empty() &&
               deliveries_.empty() && received_.empty();
    }
    // The views are valid until the next change.
    StoreRecord session(ByteView client_id) const {
        for (const auto& [id, bytes] : sessions_) {
            StoreRecord record = read(bytes);
            if (record.session.client_id == client_id) return record;
        }
        return {};
    }
    std::vector<StoreRecord> delivery_records() const {
        std::vector<StoreRecord> records;
        for (const auto& [key, bytes] : deliveries_) records.push_back(read(bytes));
        return records;
    }
    Durability received_durability() const { return read(received_.begin()->second).durability; }

   private:
    static StoreRecord read(const std::string& bytes) {
        base::ByteReader reader(bytes);
        StoreRecord record;
        EXPECT_TRUE(get_store_record(reader, record));
        return record;
    }

    static bool is_unlogged(const StoreRecord& record) {
        return record.durability == Durability::kUnlogged;
    }

    void apply(const StoreRecord& record) {
        std::string bytes;
        put_store_record(bytes, record);
        if (record.message_id != 0 && record.kind != StoreKind::kMoved) check_place(record);
        switch (record.kind) {
            case StoreKind::kRetain:
                retained_[std::string(record.message.topic)] = bytes;
                return;
            case StoreKind::kUnretain:
                retained_.erase(std::string(record.message.topic));
                return;
            case StoreKind::kSession:
                sessions_[record.session_id] = bytes;
                return;
            case StoreKind::kSessionEnd:
                sessions_.erase(record.session_id);
                erase_of(subscriptions_, record.session_id);
                EXPECT_EQ(erase_of(deliveries_, record.session_id), 0u);
                EXPECT_EQ(erase_of(received_, record.session_id), 0u);
                return;
            case StoreKind::kSubscribe:
                subscriptions_[{record.session_id, std::string(record.subscription.filter)}] =
                    bytes;
                return;
            case StoreKind::kUnsubscribe:
                subscriptions_.erase({record.session_id, std::string(record.subscription.filter)});
                return;
            default:
                apply_to_log(record, bytes);
        }
    }

    void apply_to_log(const StoreRecord& record, const std::string& bytes) {
        std::pair<uint64_t, uint64_t> delivery{record.session_id, record.sequence};
        std::pair<uint64_t, uint16_t> packet{record.session_id, record.packet_id};
        switch (record.kind) {
            case StoreKind::kMessage:
                ++written_messages_;
                messages_[record.message_id] = bytes;
                touched_.insert(record.message_id);
                return;
            case StoreKind::kCopy:
                ++copies_;
                copy(record);
                return;
            case StoreKind::kDelivery:
                EXPECT_TRUE(messages_.contains(record.message_id) || !strict_);
                forget_delivery(delivery);
                deliveries_[delivery] = bytes;
                ++uses_[record.message_id];
                return;
            case StoreKind::kDeliveryEnd:
                if (auto found = deliveries_.find(delivery); found != deliveries_.end()) {
                    EXPECT_EQ(read(found->second).message_id, record.message_id);
                    forget_delivery(delivery);
                } else if (strict_) {
                    ADD_FAILURE() << "end of a delivery that is not there";
                }
                return;
            case StoreKind::kReceived:
                received_[packet] = bytes;
                return;
            case StoreKind::kReleased:
                if (auto found = received_.find(packet); found != received_.end()) {
                    EXPECT_EQ(read(found->second).message_id, record.message_id);
                    received_.erase(found);
                }
                return;
            case StoreKind::kMoved:
                return moved(record);
            default:
                ADD_FAILURE() << "unknown record";
        }
    }

    void check_place(const StoreRecord& record) {
        last_id_ = std::max(last_id_, record.message_id);
        EXPECT_TRUE(record.message_id > cleaned_[is_unlogged(record)] || !strict_);
    }

    void copy(const StoreRecord& record) {
        EXPECT_GT(record.message_id, record.source_id);
        auto source = messages_.find(record.source_id);
        ASSERT_NE(source, messages_.end());
        StoreRecord copied = read(source->second);
        copied.message_id = record.message_id;
        std::string bytes;
        put_store_record(bytes, copied);
        messages_[record.message_id] = bytes;
        touched_.insert(record.message_id);
    }

    void forget_delivery(const std::pair<uint64_t, uint64_t>& key) {
        auto found = deliveries_.find(key);
        if (found == deliveries_.end()) return;
        uint64_t message = read(found->second).message_id;
        touched_.insert(message);
        if (--uses_[message] == 0) uses_.erase(message);
        deliveries_.erase(found);
    }

    void moved(const StoreRecord& record) {
        ++moves_;
        forget_unused();
        auto needed = [&](const StoreRecord& other) {
            return is_unlogged(other) == is_unlogged(record) &&
                   other.message_id <= record.message_id;
        };
        for (const auto& [key, bytes] : deliveries_) EXPECT_FALSE(needed(read(bytes)));
        for (const auto& [key, bytes] : received_) EXPECT_FALSE(needed(read(bytes)));
        uint64_t& cleaned = cleaned_[is_unlogged(record)];
        cleaned = std::max(cleaned, record.message_id);
    }

    // What no delivery needs at the end of a batch nothing may refer to any more.
    void forget_unused() {
        for (uint64_t id : touched_) {
            if (!uses_.contains(id)) messages_.erase(id);
        }
        touched_.clear();
    }

    template <class Map>
    static size_t erase_of(Map& map, uint64_t session) {
        return std::erase_if(map, [&](const auto& entry) { return entry.first.first == session; });
    }

    bool strict_ = true;
    uint64_t last_id_ = 0;
    uint64_t cleaned_[2] = {0, 0};
    size_t copies_ = 0;
    size_t moves_ = 0;
    size_t written_messages_ = 0;
    std::map<std::string, std::string> retained_;
    std::map<uint64_t, std::string> sessions_;
    std::map<std::pair<uint64_t, std::string>, std::string> subscriptions_;
    std::map<uint64_t, std::string> messages_;
    std::map<uint64_t, size_t> uses_;  // by deliveries
    std::set<uint64_t> touched_;       // in this batch
    std::map<std::pair<uint64_t, uint64_t>, std::string> deliveries_;
    std::map<std::pair<uint64_t, uint16_t>, std::string> received_;
};

}  // namespace pgmqtt::broker
