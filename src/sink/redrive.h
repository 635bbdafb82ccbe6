// Dead letters through their sink once more, in the caller's transaction.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pg/statement.h"
#include "sink/batch_run.h"
#include "sink/definition.h"
#include "sink/message.h"

namespace pgmqtt::sink {

class Redrive {
   public:
    Redrive();

    // The dead letters of one sink in order of id: those that can be stored now are deleted, the
    // others have one attempt more. Returns how many were stored. Throws pg::Raised when the sink
    // cannot run at all, or for a transient error: the caller's transaction is his to repeat.
    // Constraints are immediate until that transaction's end, see sink_transaction.h.
    int64_t run(const Definition& definition);

   private:
    struct Letter {
        int64_t id;
        std::shared_ptr<Message> message;
    };

    void lock(const Definition& definition);
    void fetch(const Definition& definition);
    void record(const Outcome& outcome);

    pg::Statement lock_;
    pg::Statement fetch_;
    pg::Statement remove_;
    pg::Statement update_;
    std::vector<Letter> letters_;  // the current batch
    int64_t last_id_ = 0;
};

}  // namespace pgmqtt::sink
