// The store worker's state: batches of the broker to tables, the outbox to the broker.
#pragma once

#include "pg/backend.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <string>

#include "base/pace.h"
#include "base/time.h"
#include "broker/batch.h"
#include "broker/session_changes.h"
#include "pg/queue.h"
#include "pg/transaction.h"
#include "store/commands.h"
#include "store/fetches.h"
#include "store/handover.h"
#include "store/outbox.h"
#include "store/queue_log.h"
#include "store/retained.h"
#include "store/sessions.h"
#include "store/sink_received.h"
#include "store/trouble.h"

namespace pgmqtt::store {

class Store {
   public:
    Store();

    // One cycle: everything that waits into one transaction, then the acknowledgements.
    void turn();

    // When turn() wants to run although nobody sets the latch; milliseconds, -1: not at all.
    long timeout_ms() const;

   private:
    using Clock = std::chrono::steady_clock;

    void reconnect();
    void receive();
    void take(base::ByteView batch);
    void forget_batches();
    void say_what_is_written();
    bool load();
    Clock::time_point due_at() const;
    bool due() const;
    pg::CommitWait awaited(const broker::SessionNetEffect& net) const;
    pg::Status write(const broker::SessionNetEffect& net);
    void lock_tables(const broker::SessionNetEffect& net);  // in a transaction; may raise
    void write_cycle();
    void written(const broker::SessionNetEffect& net);
    void answer_fetches();
    void tend_logs();
    void tend(QueueLog& log);
    void not_written(const pg::Error& error);
    template <class Table>
    void fetch(Handover<Table>& handover);

    pg::Link link_;
    uint32_t epoch_ = 0;

    RetainedTable retained_;
    RetainedTable::Changes retained_changes_;
    SessionTables sessions_;
    SinkReceived sink_received_;
    QueueLog logged_{LogKind::kLogged};
    QueueLog unlogged_{LogKind::kUnlogged};
    Fetches fetches_;
    broker::SessionChanges session_changes_;
    std::deque<std::string> batches_;  // received, not yet committed; the changes point into them
    uint64_t last_number_ = 0;
    bool resent_ = false;     // the next batch may hold what is committed already
    bool inherited_ = false;  // batches_ are from an earlier connection

    Handover<Outbox> outbox_;
    Handover<Commands> commands_;

    // Each transaction burns an xid: in the long run there is one per tick. A publisher that sends
    // one message at a time is no load and does not wait for that, for the first 100,000, which are
    // eight minutes of the default tick; where cycles have more to do, they soon wait for more.
    static constexpr size_t kLittle = 8;
    base::Pace pace_{1000};
    base::Pace pace_of_little_{100000};
    size_t records_ = 0;           // in batches_
    Clock::time_point tend_at_{};  // after a log could not be truncated
    Trouble tending_[std::size(kLogKinds)] = {
        {"truncate its queue", "which grows until it can"},
        {"truncate its unlogged queue", "which grows until it can"}};
    Trouble writing_{"write", "acknowledgements are withheld until it can"};
    Trouble reading_{"read messages", "clients do not get what is queued for them until it can"};
    Trouble hearing_{"read what SQL publishes or asks for", "it is held up until it can"};
};

}  // namespace pgmqtt::store
