// Copies rows out of the reorder buffer into the change log, free of pointers into the past.
#pragma once

#include "cdc/change.h"
#include "cdc/change_log.h"

namespace pgmqtt::cdc {

// Nothing in it has a destructor: the server may jump over it.
struct RowCopy {
    HeapTuple tuple = nullptr;
    const AttrNumber* absent = nullptr;
    uint32_t absent_count = 0;
};

// `tuple` with every out-of-line value brought in line. A value that is still on disk is one that
// an UPDATE did not change and the WAL does not have: it is taken from `full_old` (the whole old
// row, if the replica identity gives it), else it is NULL and its column is listed as absent.
// pallocs, may raise.
RowCopy copy_row(TupleDesc columns, HeapTuple tuple, HeapTuple full_old);

struct ChangeHead {
    Op op;
    Oid target;
    uint32_t shape;
    int64_t seq;
    int32_t mapping = 0;  // as in ChangeRecord
    Oid partition = InvalidOid;
};
void append_change(ChangeLog& log, const ChangeHead& head, const RowCopy& new_row,
                   const RowCopy& old_row);

}  // namespace pgmqtt::cdc
