// All rows of a source, read without a plan: planning calls functions that the table's owner put
// into index expressions and the like, with the rights of whoever reads.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/htup.h>
#include <nodes/pg_list.h>
}

namespace pgmqtt::cdc {

// `row` is of the source's row type, whole and without external parts, until the next one.
using TakeRow = void (*)(void* context, HeapTuple row, Oid table);

// `tables`: the source or, if it is partitioned, it and all below it, locked. The rows that the
// active snapshot sees. pallocs; raises.
void scan_source(Oid source, List* tables, TakeRow take, void* context);

}  // namespace pgmqtt::cdc
