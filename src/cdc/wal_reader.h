// Reads WAL up to what is flushed, and never waits for more.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/xlogreader.h>
}

namespace pgmqtt::cdc {

// For Create(Init)DecodingContext. At the end of the flushed WAL a read returns no record and no
// error, and can be tried again later.
XLogReaderRoutine* wal_reader_routine();

XLogRecPtr flushed_wal();

// For asynchronous commits: flushes what has been inserted, so that a change does not wait for the
// WAL writer. May raise.
XLogRecPtr flush_inserted_wal();

}  // namespace pgmqtt::cdc
