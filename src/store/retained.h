// Retained messages in pgmqtt.retained_message.
#pragma once

#include "pg/guard.h"

#include <functional>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "broker/batch.h"
#include "pg/statement.h"

namespace pgmqtt::store {

class RetainedTable {
   public:
    RetainedTable();

    // One per topic: what is left of many records when only the last counts.
    class Changes {
       public:
        void add(const broker::StoreRecord& record);
        void clear();
        bool empty() const { return entries_.empty(); }

       private:
        friend class RetainedTable;
        struct Entry {
            uint64_t topic_hash;
            bool replaces;               // the row that was there before all of them
            broker::StoreRecord record;  // the last; views into the batches
        };
        std::vector<Entry> entries_;
        std::unordered_map<base::ByteView, size_t, base::BytesHash> index_;  // topic -> entry
    };

    // Set-based, inside a transaction; may raise. `repeated`: some of it may have been written
    // before.
    void apply(const Changes& changes, bool repeated);

   private:
    pg::Statement remove_;
    pg::Statement insert_;
};

// Every retained message that has not expired, at the broker's start. Expired ones are removed
// first.
pg::Status load_retained(const std::function<void(const broker::MessageView&)>& take);

}  // namespace pgmqtt::store
