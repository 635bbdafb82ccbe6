// Rows that other transactions have left for the broker: read, sent, and removed when the broker
// says that it is done with them. If either end is new, they are read and sent again.
#pragma once

#include "pg/guard.h"

extern "C" {
#include <storage/lockdefs.h>
}

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "broker/batch.h"
#include "pg/append_table.h"
#include "pg/failpoint.h"
#include "pg/log.h"
#include "pg/queue.h"
#include "pg/transaction.h"
#include "store/blockers.h"

namespace pgmqtt::store {

// Table: Outbox or Commands.
template <class Table>
class Handover {
   public:
    using Clock = std::chrono::steady_clock;

    // `commits` grows when there is something new; `done`, if given, follows it when the broker is
    // done with that.
    Handover(broker::BatchKind kind, const std::atomic<uint64_t>& commits, const char* activity,
             std::atomic<uint64_t>* done = nullptr)
        : commits_(commits), done_(done), activity_(activity), batch_(kind) {}

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

    // When to look again at rows that somebody has locked. They are not waited for: what clients
    // wait for has nothing to do with them.
    Clock::time_point retry_at() const { return retry_at_; }

    // Reads and sends, if there is anything.
    pg::Status fetch(pg::Link& link) {
        seen_ = commits_.load(std::memory_order_acquire);
        batch_.clear();
        bool locked = false;
        pg::Status status =
            pg::transaction({.read_only = true, .activity = activity_}, [this, &locked] {
                locked = !try_lock(AccessShareLock);
                if (locked) return;
                more_ = table_.fetch(batch_);
                if (table_.under_way()) pg::failpoint_in_guard(pg::Failpoint::kHandoverRead);
            });
        if (!status || locked) {
            table_.forget();
            more_ = true;
            if (locked) passed_by();
        } else if (table_.under_way() && batch_.empty()) {
            delivered_ = true;  // rows that say nothing: nobody to wait for
        } else if (table_.under_way()) {
            link.send(batch_.finish(++number_));
        }
        if (status && !locked) locked_since_ = {};
        if (status) say_what_is_done();
        return status;
    }

    // The broker is done with the batch of this number.
    void done(uint64_t number) {
        if (number == number_ && table_.under_way()) delivered_ = true;
    }

    // What is to be removed, in a transaction (may raise), and after its commit.
    bool delivered() const { return delivered_; }
    void remove() {
        removing_ = delivered_ && try_lock(RowExclusiveLock);
        if (!removing_) return;
        table_.remove_fetched();
        pg::failpoint_in_guard(pg::Failpoint::kHandoverRemove);
    }
    void removed() {
        if (!delivered_) return;
        if (!removing_) return passed_by();
        delivered_ = removing_ = false;
        locked_since_ = {};
        table_.forget();
        say_what_is_done();
    }

   private:
    static constexpr std::chrono::milliseconds kRetry{100};
    static constexpr std::chrono::milliseconds kPatience{5000};

    // In a transaction; may raise.
    static bool try_lock(LOCKMODE mode) {
        for (const char* name : Table::kTables)
            if (!pg::try_lock(pg::table_id(name), mode)) return false;
        return true;
    }

    void say_what_is_done() {
        if (done_ != nullptr && !more_ && !table_.under_way()) done_->store(seen_);
    }

    void passed_by() {
        Clock::time_point now = Clock::now();
        retry_at_ = now + kRetry;
        if (locked_since_ == Clock::time_point{}) {
            locked_since_ = now;
            told_ = false;
        }
        if (told_ || now < locked_since_ + kPatience) return;
        told_ = true;
        pg::log(WARNING, std::string("pgmqtt store waits for a lock on pgmqtt.") + *Table::kTables,
                lock_holders());
    }

    const std::atomic<uint64_t>& commits_;
    std::atomic<uint64_t>* done_;
    const char* activity_;
    Table table_;
    broker::BatchWriter batch_;
    uint64_t number_ = 0;
    uint64_t seen_ = 0;
    bool delivered_ = false;
    bool removing_ = false;  // in this cycle
    Clock::time_point retry_at_{};
    Clock::time_point locked_since_{};
    bool told_ = false;
    bool more_ = true;  // after start: look
};

}  // namespace pgmqtt::store
