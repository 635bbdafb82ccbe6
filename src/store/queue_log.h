// One of the two logs of the queue. One writer: the store worker.
#pragma once

#include "pg/guard.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "broker/queue_ledger.h"
#include "broker/queue_log.h"
#include "broker/session_changes.h"
#include "store/message_index.h"
#include "store/queue_segments.h"

namespace pgmqtt::store {

class QueueLog {
   public:
    using Net = broker::SessionNetEffect;

    explicit QueueLog(LogKind kind) : kind_(kind) {}

    // Where everything is and what is needed, from the tables.
    pg::Status load();
    bool loaded() const { return loaded_; }

    // A cycle: what there is to write for this log; then in the transaction (may raise); then after
    // its commit. `repeated`: some of it may be there already.
    void prepare(const Net& net, bool repeated);
    void lock();
    void write();
    void written(const Net& net);

    MessageIndex& index() { return index_; }
    bool holds(broker::Durability durability) const {
        return (durability == broker::Durability::kUnlogged) == (kind_ == LogKind::kUnlogged);
    }
    LogKind kind() const { return kind_; }

    bool in_doubt() const { return doubt_; }
    bool wants_care() const { return doubt_ || has_drained(); }

    // Segments that nobody needs any more.
    bool has_drained() const { return loaded_ && !doubt_ && ledger_.drained() > 0; }
    pg::Status truncate();  // in a transaction of its own; those that nobody else has locked
    // The rest is to be moved: up to which id the broker is to be asked to, or 0.
    uint64_t wants_moved() const { return doubt_ || asked_ ? 0 : ledger_.wants_moved(); }
    void asked() { asked_ = true; }
    void forget_asked() { asked_ = false; }

   private:
    struct Loaded;

    void append_messages(int slot);
    void encode();
    void encode_deliveries(std::vector<const Net::Delivery*>& rows, broker::QueueEntry::Kind kind);
    void encode_packets(const std::vector<Net::Packet>& rows, broker::QueueEntry::Kind kind);
    void add_entry(const broker::QueueEntry& entry);
    void end_run();
    void append_runs(int slot);
    broker::Place place_of(uint64_t message_id);
    int choose_segment();
    int begin_segment(int slot);
    bool is_free(int slot) const;
    void take_over(Loaded& loaded);

    LogKind kind_;
    bool loaded_ = false;
    bool doubt_ = false;     // the counts are to be made anew
    bool repeated_ = false;  // the cycle
    bool asked_ = false;
    uint64_t next_batch_ = 1;
    broker::QueueLedger ledger_;
    MessageIndex index_;

    // Of the cycle.
    std::vector<const Net::Message*> messages_;
    std::vector<pg::RowPlace> places_;  // of messages_
    std::vector<const Net::Delivery*> deliveries_;
    std::vector<const Net::Delivery*> ends_;
    const Net* net_ = nullptr;
    broker::QueueWriter run_;
    std::vector<std::string> runs_;
    int slot_ = -1;
    uint64_t bytes_ = 0;
};

}  // namespace pgmqtt::store
