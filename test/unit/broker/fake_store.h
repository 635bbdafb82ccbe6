// The tables of the store worker as maps: what a restart would find.
#pragma once

#include <gtest/gtest.h>

#include <map>
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
    }

    void load_into(Broker& broker, Now now) const {
        for (const auto& [topic, bytes] : retained_) broker.load_retained(read(bytes).message, now);
        for (const auto& [id, bytes] : sessions_) broker.load(read(bytes), now);
        for (const auto& [key, bytes] : subscriptions_) broker.load(read(bytes), now);
        for (const auto& [id, bytes] : messages_) broker.load(read(bytes), now);
        for (const auto& [key, bytes] : deliveries_) broker.load(read(bytes), now);
        for (const auto& [key, bytes] : received_) broker.load(read(bytes), now);
        broker.loaded(now);
    }

    size_t sessions() const { return sessions_.size(); }
    size_t subscriptions() const { return subscriptions_.size(); }
    size_t messages() const { return messages_.size(); }
    size_t deliveries() const { return deliveries_.size(); }
    size_t received() const { return received_.size(); }
    size_t retained() const { return retained_.size(); }
    bool empty() const {
        return sessions_.empty() && subscriptions_.empty() && messages_.empty() &&
               deliveries_.empty() && received_.empty();
    }
    // The view is valid until the next change.
    StoreRecord session(ByteView client_id) const {
        for (const auto& [id, bytes] : sessions_) {
            StoreRecord record = read(bytes);
            if (record.session.client_id == client_id) return record;
        }
        return {};
    }

   private:
    static StoreRecord read(const std::string& bytes) {
        base::ByteReader reader(bytes);
        StoreRecord record;
        EXPECT_TRUE(get_store_record(reader, record));
        return record;
    }

    void apply(const StoreRecord& record) {
        std::string bytes;
        put_store_record(bytes, record);
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
                erase_of(deliveries_, record.session_id);
                erase_of(received_, record.session_id);
                return;
            case StoreKind::kSubscribe:
                subscriptions_[{record.session_id, std::string(record.subscription.filter)}] =
                    bytes;
                return;
            case StoreKind::kUnsubscribe:
                subscriptions_.erase({record.session_id, std::string(record.subscription.filter)});
                return;
            case StoreKind::kMessage:
                messages_[record.message_id] = bytes;
                return;
            case StoreKind::kMessageEnd:
                for (const auto& [key, delivery] : deliveries_) {
                    EXPECT_NE(read(delivery).message_id, record.message_id);
                }
                messages_.erase(record.message_id);
                return;
            case StoreKind::kDelivery:
                deliveries_[{record.session_id, record.sequence}] = bytes;
                return;
            case StoreKind::kDeliveryEnd:
                deliveries_.erase({record.session_id, record.sequence});
                return;
            case StoreKind::kReceived:
                received_[{record.session_id, record.packet_id}] = bytes;
                return;
            case StoreKind::kReleased:
                received_.erase({record.session_id, record.packet_id});
                return;
        }
    }

    template <class Map>
    static void erase_of(Map& map, uint64_t session) {
        std::erase_if(map, [&](const auto& entry) { return entry.first.first == session; });
    }

    std::map<std::string, std::string> retained_;
    std::map<uint64_t, std::string> sessions_;
    std::map<std::pair<uint64_t, std::string>, std::string> subscriptions_;
    std::map<uint64_t, std::string> messages_;
    std::map<std::pair<uint64_t, uint64_t>, std::string> deliveries_;
    std::map<std::pair<uint64_t, uint16_t>, std::string> received_;
};

}  // namespace pgmqtt::broker
