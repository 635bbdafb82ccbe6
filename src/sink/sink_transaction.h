// The transaction in which sinks run.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::sink {

// At the start of one; may raise. A lock that somebody holds for long ends in lock_not_available
// and the sink is tried later, so a locked table delays its own sink only. Deferrable constraints
// are checked with the statement: their triggers must run as the sink's owner, and an ERROR at
// commit could not be told from the message that brought it about.
void begin_sink_work();

// `statement_timeout` as set for the worker's database or role; the server itself arms it for
// commands of clients only. The scope holds no server call that may raise.
class StatementTimer {
   public:
    StatementTimer();
    ~StatementTimer();
    StatementTimer(const StatementTimer&) = delete;
};

}  // namespace pgmqtt::sink
