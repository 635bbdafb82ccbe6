// Evaluates the mappings' expressions for decoded changes, a batch per transaction, each row on its
// own: one that fails takes nobody with it.
#pragma once

#include "pg/backend.h"

#include <chrono>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "cdc/capture.h"
#include "cdc/change_log.h"
#include "cdc/dead_letter.h"
#include "cdc/mapping.h"
#include "cdc/publisher.h"
#include "cdc/row_value.h"
#include "pg/transaction.h"

namespace pgmqtt::cdc {

class Evaluator {
   public:
    Evaluator(ChangeLog& log, const Capture& capture, Publisher& publisher);
    ~Evaluator();
    Evaluator(const Evaluator&) = delete;

    // Enabled mappings that are new, or new in part, publish what commits from `since` on.
    void set_mappings(const std::vector<MappingDefinition>& definitions, XLogRecPtr since);

    enum class Outcome {
        kDone,   // a batch was evaluated, or there was nothing
        kRetry,  // something transient is in the way: the same again in a moment
        kStall,  // a mapping with on_error = 'stall' cannot go on
    };
    // At most pgmqtt.cdc_batch_size changes from the front of the log.
    Outcome run_batch();

    // When the transaction at the front of the log, or else the last one, was committed.
    TimestampTz current_commit() const;

   private:
    using Clock = std::chrono::steady_clock;

    // What came of a row, before it is with the publisher; texts are in arena_.
    struct Span {
        size_t offset = 0;
        size_t size = 0;
    };
    struct Staged {
        Mapping* mapping = nullptr;                  // null: the end of a transaction
        XLogRecPtr complete_to = InvalidXLogRecPtr;  // of that
        Span topic, payload, properties;
        base::WallTime expires_at = base::WallTime::max();
    };
    struct Entry {
        std::unique_ptr<Mapping> mapping;
        bool begun = false;            // in this transaction
        bool failed = false;           // could not begin in this transaction
        bool needs_visibility = true;  // an expression looks at tables; assumed until known
        XLogRecPtr failure_told = InvalidXLogRecPtr;  // commit for which there is a dead letter
        pg::Error failure;
    };
    // Of one row; plain.
    struct RowResult;
    // A row that a mapping was evaluated for.
    struct Counted {
        Mapping* mapping;
        bool filtered;
    };

    Outcome evaluate();
    bool visible(const BeginRecord& begin);
    Outcome evaluate_change(ChangeRecord& change);
    Outcome evaluate_for(Entry& entry, ChangeRecord& change);
    pg::Status begin_mapping(Entry& entry);
    void act_for(Mapping* mapping);
    pg::Status evaluate_row(Mapping& mapping, ChangeRecord& change, RowResult& result);
    void fill_values(Mapping& mapping, ChangeRecord& change);
    RowConversion* conversion(Mapping& mapping, uint32_t shape);
    pg::Status stage(Mapping& mapping, const RowResult& result);
    Outcome clear_old_topic(Entry& entry, const ChangeRecord& change, base::ByteView topic);
    Outcome failed(Entry& entry, const RowResult* result, pg::Error error);
    Span keep(base::ByteView bytes);
    void end_transaction();
    void publish_staged();
    void begin_counting();
    void report_work();

    ChangeLog& log_;
    const Capture& capture_;
    Publisher& publisher_;
    DeadLetters dead_letters_;
    std::unordered_map<int, Entry> entries_;
    std::unordered_map<Oid, std::vector<Entry*>> by_source_;
    bool needs_visibility_ = true;  // some expression looks at tables

    // Of the decoded transaction that is being evaluated; it may span batches.
    BeginRecord begin_{};

    // Of one batch.
    ChangeLog::Mark done_to_;
    std::string arena_;
    std::vector<Staged> staged_;
    std::vector<DeadLetter> letters_;
    std::vector<Counted> counted_;
    Clock::time_point began_{};
    Clock::time_point acting_since_{};
    std::vector<RowConversion*> conversions_;
    MemoryContext row_memory_ = nullptr;
    Mapping* acting_for_ = nullptr;
    pg::ActAs acting_{};
};

}  // namespace pgmqtt::cdc
