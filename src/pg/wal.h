// The write-ahead log between "in shared memory" and "on disk".
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/xlogdefs.h>
}

namespace pgmqtt::pg {

// Returns when the operating system has the WAL up to `upto`: then the end of any process does not
// lose it, only that of the machine does. Waits for no flush but for one that is under way. May
// raise; inside a guard, outside transactions.
void write_wal(XLogRecPtr upto);

}  // namespace pgmqtt::pg
