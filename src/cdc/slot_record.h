// What pgmqtt.cdc_slot remembers of the replication slot, so that one which is not there any more
// is noticed, and pgmqtt.gap, which says what that means for each mapping. Slots are neither
// replicated nor dumped; these tables are. Each function runs a transaction.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/xlogdefs.h>
}

#include "pg/guard.h"

namespace pgmqtt::cdc {

// There is no slot: if one is remembered, every enabled mapping that it held changes for has a gap.
// True when that is news.
pg::Result<bool> note_missing_slot();

// There is one, and all before `confirmed` was published. Ends gaps that are still open.
pg::Status remember_slot(XLogRecPtr confirmed);

// It was dropped because nobody needs it.
pg::Status forget_slot();

}  // namespace pgmqtt::cdc
