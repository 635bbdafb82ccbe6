// What SQL functions asked of the broker and have committed: rows of pgmqtt.command.
#pragma once

#include "pg/guard.h"

#include <functional>
#include <vector>

#include "broker/batch.h"
#include "pg/statement.h"

namespace pgmqtt::store {

class Commands {
   public:
    static constexpr const char* kTables[] = {"command"};

    Commands();

    // Reads the next ones into `batch` and remembers them as under way. Within a transaction; may
    // raise. Call when nothing is under way. True: there may be more behind them.
    bool fetch(broker::BatchWriter& batch);

    // Removes what is under way: the broker has carried it out.
    void remove_fetched();  // within a transaction; may raise

    bool under_way() const { return !fetched_.empty(); }
    void forget() { fetched_.clear(); }

   private:
    pg::Statement next_;
    pg::Statement remove_;
    std::vector<int64_t> fetched_;
};

// Those that wait, for a broker that starts; none if somebody has locked them.
pg::Status load_commands(const std::function<void(const broker::CommandRecord&)>& take);

}  // namespace pgmqtt::store
