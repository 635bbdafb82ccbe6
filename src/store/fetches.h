// Messages that the broker asks for, back from the log.
#pragma once

#include "pg/guard.h"

#include <deque>
#include <vector>

#include "broker/batch.h"
#include "pg/queue.h"
#include "store/queue_log.h"

namespace pgmqtt::store {

class Fetches {
   public:
    Fetches();

    void add(broker::BatchReader& batch);
    void clear() { requests_.clear(); }
    bool pending() const { return !requests_.empty(); }

    // Reads and sends as much as the link takes for now. `complete`: nothing waits to be written,
    // so what is not there is lost; else it is waited for. Call when pending.
    pg::Status answer(QueueLog& logged, QueueLog& unlogged, bool complete, pg::Link& link);

   private:
    struct Request {
        uint64_t number = 0;
        std::vector<broker::FetchRecord> records;
        size_t next = 0;
    };

    void read(Request& request, QueueLog& logged, QueueLog& unlogged, bool complete);

    std::deque<Request> requests_;
    broker::BatchWriter answer_;
    bool waiting_ = false;  // for what is not written yet
};

}  // namespace pgmqtt::store
