// Rows that other transactions have left for the broker: read, sent, and removed when the broker
// says that it is done with them. If either end is new, they are read and sent again.
#pragma once

#include "pg/guard.h"

#include <atomic>
#include <utility>

#include "broker/batch.h"
#include "pg/failpoint.h"
#include "pg/queue.h"
#include "pg/transaction.h"

namespace pgmqtt::store {

// Table: Outbox or Commands.
template <class Table>
class Handover {
   public:
    // `commits` grows when there is something new.
    Handover(broker::BatchKind kind, const std::atomic<uint64_t>& commits, const char* activity)
        : commits_(commits), activity_(activity), batch_(kind) {}

    // Numbers do not repeat, so that what the broker says of an earlier connection is not believed.
    void reconnected(uint32_t epoch) {
        number_ = uint64_t{epoch} << 32;
        table_.forget();
        delivered_ = false;
        more_ = true;
    }

    bool has_work() const {
        return !table_.under_way() && (more_ || commits_.load(std::memory_order_acquire) != seen_);
    }

    // Reads and sends, if there is anything.
    pg::Status fetch(pg::Link& link) {
        seen_ = commits_.load(std::memory_order_acquire);
        batch_.clear();
        pg::Status status = pg::transaction({.read_only = true, .activity = activity_}, [this] {
            more_ = table_.fetch(batch_);
            if (table_.under_way()) pg::failpoint_in_guard(pg::Failpoint::kHandoverRead);
        });
        if (!status) {
            table_.forget();
            more_ = true;
        } else if (table_.under_way() && batch_.empty()) {
            delivered_ = true;  // rows that say nothing: nobody to wait for
        } else if (table_.under_way()) {
            link.send(batch_.finish(++number_));
        }
        return status;
    }

    // The broker is done with the batch of this number.
    void done(uint64_t number) {
        if (number == number_ && table_.under_way()) delivered_ = true;
    }

    // What is to be removed, in a transaction (may raise), and after its commit.
    bool delivered() const { return delivered_; }
    void remove() {
        if (!delivered_) return;
        table_.remove_fetched();
        pg::failpoint_in_guard(pg::Failpoint::kHandoverRemove);
    }
    void removed() {
        if (std::exchange(delivered_, false)) table_.forget();
    }

   private:
    const std::atomic<uint64_t>& commits_;
    const char* activity_;
    Table table_;
    broker::BatchWriter batch_;
    uint64_t number_ = 0;
    uint64_t seen_ = 0;
    bool delivered_ = false;
    bool more_ = true;  // after start: look
};

}  // namespace pgmqtt::store
