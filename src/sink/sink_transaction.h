// What holds for a transaction in which sinks run.
#pragma once

#include "pg/backend.h"

#include <chrono>

namespace pgmqtt::sink {

// Until the end of the transaction. Both may raise.

// A lock that somebody holds for longer ends in lock_not_available and is tried later. By default
// as long as any worker waits; less where sinks wait for each other (LockPatience).
void limit_lock_waits(std::chrono::milliseconds longest = std::chrono::milliseconds{200});

// Deferrable constraints are checked with the statement: their triggers must run as the sink's
// owner, and an ERROR at commit could not be told from the message that brought it about.
void check_constraints_at_once();

}  // namespace pgmqtt::sink
