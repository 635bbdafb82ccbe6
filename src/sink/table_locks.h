// The locks of a sink's tables, before the server takes them.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <utils/plancache.h>
}

namespace pgmqtt::sink {

enum class LockWait {
    kNone,   // raises lock_not_available where somebody holds, or waits for, one that conflicts
    kQueue,  // as lock_timeout allows
};

// Takes the locks that the server takes before it executes `source`: of every table and view of
// the statement and, as far as its last plan has them, of their partitions. What is met only while
// the statement runs (rows, the partition a row goes to, tables of triggers and foreign keys) is
// not looked at. The server itself would wait more than once after DDL: it gives the locks back to
// analyze the statement again.
void lock_tables(const CachedPlanSource& source, LockWait wait);

}  // namespace pgmqtt::sink
