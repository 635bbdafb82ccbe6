// Records of the broker to the store, one by one and as a broker would say them over some time.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/store_record.h"

namespace pgmqtt::broker {

inline StoreRecord message(uint64_t id, ByteView payload = "p") {
    StoreRecord record{.kind = StoreKind::kMessage, .message_id = id};
    record.message.payload = payload;
    return record;
}

inline StoreRecord copy(uint64_t id, uint64_t source_id) {
    return {.kind = StoreKind::kCopy, .message_id = id, .source_id = source_id};
}

inline StoreRecord delivery(uint64_t session, uint64_t sequence, uint64_t message_id,
                            bool sent = false) {
    StoreRecord record{.kind = StoreKind::kDelivery,
                       .session_id = session,
                       .message_id = message_id,
                       .sequence = sequence};
    record.delivery.sent = sent;
    return record;
}

inline StoreRecord delivery_end(uint64_t session, uint64_t sequence, uint64_t message_id) {
    return {.kind = StoreKind::kDeliveryEnd,
            .session_id = session,
            .message_id = message_id,
            .sequence = sequence};
}

inline StoreRecord session(StoreKind kind, uint64_t id, uint32_t expiry = 0) {
    StoreRecord record{.kind = kind, .session_id = id};
    record.session.expiry_interval = expiry;
    return record;
}

inline StoreRecord subscription(StoreKind kind, uint64_t session, ByteView filter,
                                mqtt::Qos qos = mqtt::Qos::k1) {
    StoreRecord record{.kind = kind, .session_id = session};
    record.subscription.filter = filter;
    record.subscription.qos = qos;
    return record;
}

inline StoreRecord packet(StoreKind kind, uint64_t session, uint16_t packet_id, uint64_t id = 1) {
    return {.kind = kind, .session_id = session, .message_id = id, .packet_id = packet_id};
}

// What is said in one turn, and so in one batch.
using Batch = std::vector<StoreRecord>;

// A few sessions with queues. Also moves what is old to copies, and ends session 2.
class StoreStream {
   public:
    explicit StoreStream(uint64_t seed) : dice_(seed) {}

    Batch next() {
        Batch batch;
        uint64_t number = dice_() % 8;
        if (number < 3)
            begin(batch);
        else if (number < 6 && !open_.empty())
            change(batch);
        else if (number == 6 && !open_.empty())
            move(batch, open_.begin()->second);
        else
            exactly_once(batch);
        return batch;
    }

    Batch end_session(uint64_t id) {
        Batch batch;
        for (auto position = open_.begin(); position != open_.end();) {
            if (position->first.first != id) {
                ++position;
                continue;
            }
            batch.push_back(delivery_end(id, position->first.second, position->second));
            position = open_.erase(position);
        }
        std::erase_if(received_, [id](const auto& row) { return row.first.first == id; });
        ended_.insert(id);
        batch.push_back(session(StoreKind::kSessionEnd, id));
        return batch;
    }

    // All that the oldest message takes part in, up to the newest id.
    Batch move_all() {
        Batch batch;
        uint64_t up_to = last_id_;
        while (!open_.empty()) {
            auto oldest =
                std::min_element(open_.begin(), open_.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; });
            if (oldest->second > up_to) break;
            move(batch, oldest->second);
        }
        for (auto& [key, id] : received_) {
            id = ++last_id_;
            batch.push_back(packet(StoreKind::kReceived, key.first, key.second, id));
        }
        batch.push_back({.kind = StoreKind::kMoved, .message_id = up_to});
        return batch;
    }

   private:
    static constexpr uint64_t kSessions = 3;

    void begin(Batch& batch) {
        uint64_t id = ++last_id_;
        batch.push_back(message(id));
        for (uint64_t receiver = 1; receiver <= kSessions; ++receiver) {
            if (ended_.contains(receiver)) continue;
            batch.push_back(delivery(receiver, ++sequence_, id));
            open_[{receiver, sequence_}] = id;
        }
    }

    void change(Batch& batch) {
        auto position = std::next(open_.begin(), static_cast<long>(dice_() % open_.size()));
        auto [key, id] = *position;
        if (dice_() % 3 == 0) return batch.push_back(delivery(key.first, key.second, id, true));
        batch.push_back(delivery_end(key.first, key.second, id));
        open_.erase(position);
    }

    void move(Batch& batch, uint64_t source) {
        uint64_t id = ++last_id_;
        batch.push_back(copy(id, source));
        for (auto& [key, current] : open_) {
            if (current != source) continue;
            current = id;
            batch.push_back(delivery(key.first, key.second, id));
        }
    }

    void exactly_once(Batch& batch) {
        std::pair<uint64_t, uint16_t> key{1 + dice_() % kSessions,
                                          static_cast<uint16_t>(dice_() % 4)};
        if (ended_.contains(key.first)) return;
        auto known = received_.find(key);
        if (known == received_.end()) {
            received_[key] = ++last_id_;
            batch.push_back(packet(StoreKind::kReceived, key.first, key.second, last_id_));
        } else {
            batch.push_back(packet(StoreKind::kReleased, key.first, key.second, known->second));
            received_.erase(known);
        }
    }

    std::mt19937_64 dice_;
    uint64_t last_id_ = 0;
    uint64_t sequence_ = 0;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> open_;
    std::map<std::pair<uint64_t, uint16_t>, uint64_t> received_;
    std::set<uint64_t> ended_;
};

}  // namespace pgmqtt::broker
