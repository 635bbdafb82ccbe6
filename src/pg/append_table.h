// Rows at the end of a table that has no index, and rows by where they are: through the table
// access method, without the executor. For tables that are written by one process, thousands of
// rows per second: a prepared INSERT costs two to three times as much, says only by RETURNING where
// the rows went, and is planned anew after every TRUNCATE.
//
// Everything here may raise. The classes are trivially destructible: at an ERROR the transaction's
// abort closes what they opened.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/tableam.h>
}

#include <cstdint>
#include <initializer_list>

#include "base/bytes.h"

namespace pgmqtt::pg {

// Block and offset of a row in one number, which is never 0.
using RowPlace = uint64_t;

// A table of schema pgmqtt, by its name. ERROR if it is not there, 0 if `may_miss`.
Oid table_id(const char* name, bool may_miss = false);

// Changes when the table is rewritten or truncated.
uint32_t file_of(Relation table);

bool try_lock(Oid table, LOCKMODE mode);
void lock(Oid table, LOCKMODE mode);  // waits, at most for lock_timeout

class TableAppender {
   public:
    // The caller holds RowExclusiveLock.
    explicit TableAppender(Oid table);

    // Values of a row are to be made in this context; they are freed as rows are written.
    MemoryContext context() const { return context_; }

    // None is NULL. `place`, if not null, is told where the row is, by the end of flush() at last.
    // `bytes`: about the size of the row.
    void add(std::initializer_list<Datum> row, size_t bytes, RowPlace* place);
    // A row of a table with the same columns, its first one replaced.
    void add_copy(TupleTableSlot* row, Datum first, size_t bytes, RowPlace* place);

    void flush();
    void close();

   private:
    static constexpr int kRows = 256;
    static constexpr size_t kBytes = 256 * 1024;

    TupleTableSlot* next_slot();
    void added(size_t bytes, RowPlace* place);

    Relation table_;
    MemoryContext context_;
    TupleTableSlot* slots_[kRows];
    RowPlace* places_[kRows];
    int made_ = 0;
    int count_ = 0;
    size_t bytes_ = 0;
};

class TableReader {
   public:
    // With AccessShareLock from here to close(): whoever has read must not keep the table from
    // being truncated until its transaction ends. Reads with the active snapshot.
    explicit TableReader(Oid table);

    Relation table() const { return table_; }

    // The row at a place: null if there is none. Valid until the next call.
    TupleTableSlot* at(RowPlace place);

    // All rows, one after the other; null at the end. Not between calls of at().
    TupleTableSlot* next();
    // Of the row that was read last.
    RowPlace place() const;

    void close();

   private:
    Relation table_;
    TupleTableSlot* slot_;
    TableScanDesc scan_ = nullptr;
    BlockNumber blocks_;
};

}  // namespace pgmqtt::pg
