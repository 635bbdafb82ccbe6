// Publishes of pgmqtt.publish() that are committed and not yet with the broker.
#pragma once

#include "pg/guard.h"

#include <string>
#include <vector>

#include "base/time.h"
#include "broker/batch.h"
#include "pg/statement.h"

namespace pgmqtt::store {

class Outbox {
   public:
    static constexpr const char* kTables[] = {"outbox", "outbox_commit"};

    Outbox();

    // Reads the next publishes in commit order into `batch` and remembers them as under way. Within
    // a transaction; may raise. Call when nothing is under way. True: there is more behind them.
    bool fetch(broker::BatchWriter& batch);

    // Removes what is under way: the broker has routed and, where it must be, stored it.
    void remove_fetched();  // within a transaction; may raise

    bool under_way() const { return !fetched_.empty(); }
    void forget() { fetched_.clear(); }
    // Whatever is known of where to begin: also for rows that have their numbers from elsewhere.
    void begin_anew() { floor_ = bound_ = 0; }

   private:
    struct Row {
        uint64_t xid;
        int64_t id;
        int64_t seq;
    };
    pg::Statement next_;
    pg::Statement remove_;
    pg::Statement remove_commits_;
    std::vector<Row> fetched_;

    // Rows up to here are gone, and none will come: where the next search begins. Behind them are
    // those that a held snapshot keeps in the index, each of which every search would look at.
    void raise_floor(bool found, int64_t first);
    int64_t floor_ = 0;
    // Numbers up to `bound_` were given out before `bound_xid_` was: when no transaction older than
    // that runs any more, those numbers are all decided.
    int64_t bound_ = 0;
    uint64_t bound_xid_ = 0;
    base::MonoTime begun_anew_at_{};
};

}  // namespace pgmqtt::store
