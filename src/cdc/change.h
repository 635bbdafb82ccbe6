// A decoded change on its way from the output plugin to evaluation: flat, 8-byte aligned bytes in
// the change log, so that a transaction of any size can wait in a file.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/htup_details.h>
#include <access/tupdesc.h>
#include <access/xlogdefs.h>
#include <datatype/timestamp.h>
}

#include <cstdint>

namespace pgmqtt::cdc {

enum class Op : uint8_t { kInsert = 1, kUpdate, kDelete, kTruncate, kSnapshot };
inline constexpr int kOpCount = 5;

// "INSERT": the value of `op` in expressions.
const char* op_name(Op op);

enum class RecordKind : uint8_t { kBegin = 1, kChange, kCommit };

// Every record begins with this; `size` includes it and is a multiple of 8.
struct Record {
    uint64_t size;
    RecordKind kind;
};

// Stands before the changes of a transaction.
struct BeginRecord : Record {
    uint64_t xid;  // with epoch
    XLogRecPtr commit_lsn;
    TimestampTz committed_at;
    int hops;  // see pg/hops.h
};

// Stands behind them.
struct CommitRecord : Record {
    XLogRecPtr end_lsn;  // the slot may be confirmed up to here
};

// One side (new or old) of a changed row.
struct RowPart {
    uint32_t offset;  // of the tuple in the record; 0: there is none
    uint32_t length;  // of the tuple
    uint32_t absent;  // offset of the numbers of the columns whose value is not in the WAL
    uint32_t absent_count;
};

struct ChangeRecord : Record {
    Op op;
    Oid target;       // the mapped relation: the changed one or its partitioned ancestor
    uint32_t shape;   // of the changed relation at that time, index into Shapes
    int32_t mapping;  // the only one that it is for; 0: all of the target
    Oid partition;    // that holds the row; invalid: the relation of the shape
    int64_t seq;      // grows inside the transaction, and is the same when it is decoded again
    RowPart new_row;
    RowPart old_row;

    HeapTupleHeader tuple(const RowPart& part) {
        return reinterpret_cast<HeapTupleHeader>(reinterpret_cast<char*>(this) + part.offset);
    }
    const AttrNumber* absent(const RowPart& part) const {
        return reinterpret_cast<const AttrNumber*>(reinterpret_cast<const char*>(this) +
                                                   part.absent);
    }
};

inline size_t aligned(size_t size) {
    return (size + 7) & ~size_t{7};
}

}  // namespace pgmqtt::cdc
