// The queue as a log: what a row of pgmqtt.queue_log holds, and what is left when all are read
// again.
//
// One run of entries per row, each encoded against the one before it: about 5 bytes for a delivery,
// 3 for its end. Runs are read in the order in which they were written; within one the order means
// nothing, since it says one thing of a delivery or identifier at most.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "broker/sorted_runs.h"
#include "broker/store_record.h"

namespace pgmqtt::broker {

// Where the row of a message is: whatever the store worker makes of it. 0: nowhere.
using Place = uint64_t;

struct QueueEntry {
    enum class Kind : uint8_t { kDelivery = 1, kEnd, kReceived, kReleased };
    Kind kind = Kind::kDelivery;
    uint64_t session_id = 0;
    uint64_t number = 0;  // the sequence of a delivery, the packet identifier of the others
    uint64_t message_id = 0;
    Place place = 0;  // deliveries only, as is what follows
    StoredDelivery delivery{};
};

class QueueWriter {
   public:
    void clear();
    bool empty() const { return count_ == 0; }
    // Small when entries of a session follow each other by number.
    void add(const QueueEntry& entry);
    ByteView bytes() const { return bytes_; }

   private:
    std::string bytes_;
    uint64_t count_ = 0;
    QueueEntry last_{};
};

// Trusts nothing: the bytes come from a table.
class QueueReader {
   public:
    explicit QueueReader(ByteView bytes);
    // Views point into the bytes.
    bool next(QueueEntry& entry);
    bool ok() const { return ok_; }

   private:
    bool read(QueueEntry& entry);
    void read_delivery(uint8_t head, uint8_t changed, QueueEntry& entry);
    uint64_t varint();
    uint64_t after(uint64_t last);

    base::ByteReader reader_;
    bool ok_ = false;
    QueueEntry last_{};
};

// What is there when all runs of one log are read.
class QueueReplay {
   public:
    // In the order of writing. False on malformed bytes: what could be read counts.
    bool add(ByteView run);

    // By session, its deliveries by sequence and then its received identifiers; sessions in order
    // of their ids. The views are valid until the next add().
    template <class Take>
    void for_each(Take&& take);

    // Of all entries, also those that are over.
    uint64_t last_id() const { return last_id_; }
    // Deliveries and received identifiers, however often and whether over or not.
    uint64_t added() const { return added_; }

   private:
    struct Slot {
        uint64_t sequence = 0;
        uint64_t message_id = 0;
        Place place = 0;
        int64_t expires_at = 0;
        uint32_t bytes = 0;
        uint32_t identifiers = 0;  // 0: none; else one more than the index
        DeliveryState state = DeliveryState::kQueued;
        mqtt::Qos qos = mqtt::Qos::k0;
        bool sent = false;
        bool retain = false;
        bool over = false;
    };
    struct Queue {
        SortedRuns<Slot> slots;
        size_t over = 0;
        std::unordered_map<uint16_t, uint64_t> received;
    };

    void apply(const QueueEntry& entry);
    Queue& queue_of(uint64_t session_id);
    static void end(Queue& queue, uint64_t sequence);
    void write(Queue& queue, const QueueEntry& entry);
    uint32_t keep(ByteView identifiers);
    std::vector<uint64_t> sessions() const;
    QueueEntry entry_of(uint64_t session_id, const Slot& slot) const;

    std::unordered_map<uint64_t, Queue> queues_;
    uint64_t current_id_ = 0;
    Queue* current_ = nullptr;  // of the entry before
    std::vector<std::string> identifiers_;
    std::unordered_map<std::string, uint32_t> identifier_index_;
    uint64_t last_id_ = 0;
    uint64_t added_ = 0;
};

template <class Take>
void QueueReplay::for_each(Take&& take) {
    for (uint64_t session_id : sessions()) {
        Queue& queue = queues_.at(session_id);
        queue.slots.for_each([&](const Slot& slot) {
            if (!slot.over) take(entry_of(session_id, slot));
        });
        for (const auto& [packet_id, message_id] : queue.received)
            take(QueueEntry{.kind = QueueEntry::Kind::kReceived,
                            .session_id = session_id,
                            .number = packet_id,
                            .message_id = message_id});
    }
}

}  // namespace pgmqtt::broker
