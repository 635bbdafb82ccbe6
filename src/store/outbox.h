// Publishes of pgmqtt.publish() that are committed and not yet with the broker.
#pragma once

#include "pg/guard.h"

#include <string>
#include <vector>

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
};

}  // namespace pgmqtt::store
