// What holds for a transaction in which sinks run.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::sink {

// Until the end of the transaction. Both may raise.

// A lock that somebody holds for long ends in lock_not_available and the sink is tried later: a
// locked table delays its own sink only.
void limit_lock_waits();

// Deferrable constraints are checked with the statement: their triggers must run as the sink's
// owner, and an ERROR at commit could not be told from the message that brought it about.
void check_constraints_at_once();

}  // namespace pgmqtt::sink
