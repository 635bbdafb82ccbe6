// Publishes whose promise is not kept yet: a retained message to be stored, rows to be made by
// sinks. Keeps what was sent to the workers, so that one that comes back gets it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
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

    PublishId open(mqtt::ReasonCode reason);
    void set_owner(PublishId id, const PendingOwner& owner) { publishes_[id].done.owner = owner; }

    // A part of the publish, into the batch of this turn. kNone: nobody waits for the record.
    void add_store(PublishId id, const StoreRecord& record, BatchWriter& batch);
    void add_sink(PublishId id, SinkRecord& record, BatchWriter& batch);  // gives the token

    // Append what is complete now, in order. What is unknown, or done already, is ignored: a worker
    // that came back may answer twice.
    void store_done(uint64_t batch, std::vector<FinishedPublish>& finished);
    void sink_done(const CompletionRecord& completion, std::vector<FinishedPublish>& finished);

    // Everything without an answer goes into the batch of this turn, before what is new in it.
    void resend_store(BatchWriter& batch);
    void resend_sink(BatchWriter& batch);

    // The batches were sent: keeps their bytes.
    void end_turn(const BatchWriter& store, const BatchWriter& sink);

    uint64_t store_batch() const { return store_batch_; }
    // Everything in batches up to this one is stored.
    uint64_t stored_batch() const { return stored_batch_; }
    uint64_t sink_batch() const { return sink_batch_; }
    size_t bytes() const { return bytes_; }
    uint64_t count() const { return open_; }

   private:
    struct Publish {
        uint32_t parts = 0;  // answers that are missing; 0: free
        FinishedPublish done;
    };

    struct StoreBatch {
        uint64_t number = 0;
        uint32_t count = 0;
        std::string records;
        std::vector<PublishId> publishes;
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
    SinkBatch* find_sink_batch(uint64_t number);

    std::vector<Publish> publishes_;
    std::vector<PublishId> free_;
    uint64_t open_ = 0;
    size_t bytes_ = 0;

    uint64_t store_batch_ = 1;  // of the current turn
    uint64_t stored_batch_ = 0;
    std::vector<PublishId> store_publishes_;  // in the current turn
    Fifo<StoreBatch> store_batches_;          // sent, not answered

    uint64_t sink_batch_ = 1;
    uint32_t answered_in_turn_ = 0;  // resent in this turn, but an answer was on its way
    uint64_t first_token_ = 1;
    Fifo<SinkPart> sink_parts_;     // by token
    Fifo<SinkBatch> sink_batches_;  // numbers without a gap
};

}  // namespace pgmqtt::broker
