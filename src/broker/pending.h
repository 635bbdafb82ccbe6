// Publishes whose promise is not kept yet: a retained message to be stored, rows to be made by
// sinks. Keeps what was sent to the workers, so that one that comes back gets it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "broker/batch.h"
#include "broker/fifo.h"

namespace pgmqtt::broker {

// Who hears when a publish is done.
struct PendingOwner {
    enum class Kind : uint8_t { kNobody, kPuback, kPubrec, kSqlBatch };
    Kind kind = Kind::kNobody;
    base::ConnectionId connection{};  // kPuback
    uint64_t number = 0;     // kPuback: of the OwedAck; kPubrec: of the session; kSqlBatch: of it
    uint16_t packet_id = 0;  // kPubrec
};

struct FinishedPublish {
    PendingOwner owner;
    mqtt::ReasonCode reason = mqtt::ReasonCode::kSuccess;
    std::string reason_string;
};

class Pending {
   public:
    using PublishId = uint32_t;
    static constexpr PublishId kNone = UINT32_MAX;

    // Names a publish beyond its end: identifiers are used again, numbers are not.
    struct Ticket {
        PublishId id = kNone;
        uint64_t number = 0;
    };

    // What of a publish is in a batch of the store.
    enum class Part : uint8_t { kRecord, kDeliveries };

    PublishId open(mqtt::ReasonCode reason);
    void set_owner(PublishId id, const PendingOwner& owner) { publishes_[id].done.owner = owner; }

    const PendingOwner& owner(PublishId id) const { return publishes_[id].done.owner; }

    // A part of the publish, into the batch of this turn. kNone: nobody waits for the record.
    // kDeliveries: all of them are one part, which is done when they are stored or when none is
    // needed any more.
    void add_store(PublishId id, const StoreRecord& record, BatchWriter& batch,
                   Part part = Part::kRecord);
    // One more delivery of the publish; all are in the same batch.
    Ticket add_delivery(PublishId id);
    // It needs no storing any more: its receiver has the message, or will never have it.
    void delivery_done(const Ticket& ticket, std::vector<FinishedPublish>& finished);
    void add_sink(PublishId id, SinkRecord& record, BatchWriter& batch);  // gives the token

    // Append what is complete now, in order. What is unknown, or done already, is ignored: a worker
    // that came back may answer twice.
    void store_done(uint64_t batch, std::vector<FinishedPublish>& finished);
    void sink_done(const CompletionRecord& completion, std::vector<FinishedPublish>& finished);

    // Appends the publishes that wait for batches sent at this time or before: each once.
    void overdue(base::MonoTime sent, std::vector<PublishId>& waiting);
    // When the first of the batches was sent of which overdue() has not told; kNever: none.
    base::MonoTime first_unreported() const;
    // overdue() has told of batches up to this one.
    uint64_t overdue_batch() const { return overdue_batch_; }

    // Everything without an answer goes into the batch of this turn, before what is new in it.
    void resend_store(BatchWriter& batch);
    void resend_sink(BatchWriter& batch);

    // The batches were sent: keeps their bytes.
    void end_turn(const BatchWriter& store, const BatchWriter& sink, base::MonoTime now);

    uint64_t store_batch() const { return store_batch_; }
    // Everything in batches up to this one is stored.
    uint64_t stored_batch() const { return stored_batch_; }
    uint64_t sink_batch() const { return sink_batch_; }
    size_t bytes() const { return bytes_; }
    uint64_t count() const { return open_; }

   private:
    struct Publish {
        uint64_t number = 0;
        uint32_t parts = 0;       // answers that are missing; 0: free
        uint32_t deliveries = 0;  // of the part kDeliveries while that is open
        bool deliveries_open = false;
        FinishedPublish done;
    };

    struct StorePart {
        Ticket publish;
        Part part = Part::kRecord;
    };

    struct StoreBatch {
        uint64_t number = 0;
        uint32_t count = 0;
        base::MonoTime sent{};
        std::string records;
        std::vector<StorePart> parts;
    };

    struct SinkBatch {
        uint64_t number = 0;
        uint32_t unanswered = 0;
        std::string records;  // freed when nothing in it is unanswered
    };

    struct SinkPart {
        PublishId publish = kNone;
        uint64_t batch = 0;
        size_t offset = 0;
        size_t size = 0;
        bool done = false;
    };

    void part_done(PublishId id, mqtt::ReasonCode reason, ByteView reason_string,
                   std::vector<FinishedPublish>& finished);
    // Whether it was done before, without the store.
    bool is_over(const StorePart& part) const;
    SinkBatch* find_sink_batch(uint64_t number);

    std::vector<Publish> publishes_;
    std::vector<PublishId> free_;
    uint64_t open_ = 0;
    uint64_t last_number_ = 0;
    size_t bytes_ = 0;

    uint64_t store_batch_ = 1;  // of the current turn
    uint64_t stored_batch_ = 0;
    uint64_t overdue_batch_ = 0;
    std::vector<StorePart> store_parts_;          // in the current turn
    base::MonoTime resent_since_ = base::kNever;  // what is sent again in it was first sent then
    Fifo<StoreBatch> store_batches_;              // sent, not answered

    uint64_t sink_batch_ = 1;
    uint32_t answered_in_turn_ = 0;  // resent in this turn, but an answer was on its way
    uint64_t first_token_ = 1;
    Fifo<SinkPart> sink_parts_;     // by token
    Fifo<SinkBatch> sink_batches_;  // numbers without a gap
};

}  // namespace pgmqtt::broker
