// The server has one function that writes WAL without flushing it: XLogBackgroundFlush(), the WAL
// writer's. It writes pages that are complete; only where all of those are flushed already, also
// the beginning of the page that is being filled, up to the last asynchronous commit. So a commit
// on a page with room left would wait for others to fill it: a record that says nothing and ends
// with the page does that.
#include "pg/wal.h"

extern "C" {
#include <access/xact.h>
#include <access/xlog.h>
#include <access/xloginsert.h>
#include <access/xlogrecord.h>
#include <catalog/pg_control.h>
#include <postmaster/walwriter.h>
}

#include <climits>

namespace pgmqtt::pg {
namespace {

// Each round writes at least up to where the ring of WAL buffers begins again.
constexpr int kRounds = 8;

XLogRecPtr page_of(XLogRecPtr place) {
    return place - place % XLOG_BLCKSZ;
}

XLogRecPtr flushed_to() {
#if PG_VERSION_NUM >= 150000
    return GetFlushRecPtr(nullptr);
#else
    return GetFlushRecPtr();
#endif
}

// A record that is replayed and decoded as nothing, and that no checkpoint is due for. If others
// write meanwhile it ends on a later page, which is as good.
void fill_page(XLogRecPtr insert) {
    static char nothing[XLOG_BLCKSZ];
    constexpr uint64 kShort = SizeOfXLogRecord + SizeOfXLogRecordDataHeaderShort;
    constexpr uint64 kLong = SizeOfXLogRecord + SizeOfXLogRecordDataHeaderLong;
    uint64 room = XLOG_BLCKSZ - insert % XLOG_BLCKSZ;
    uint64 head = room <= kShort + UINT8_MAX ? kShort : kLong;
    uint64 size = room > head ? room - head : 1;
    // The next transaction is to know of its own records only.
    XLogRecPtr last = XactLastRecEnd;
    XLogBeginInsert();
    XLogSetRecordFlags(XLOG_MARK_UNIMPORTANT);
    XLogRegisterData(nothing, static_cast<int>(size));
    XLogInsert(RM_XLOG_ID, XLOG_NOOP);
    XactLastRecEnd = last;
}

// These settings, of which each process has its copy, say how often whoever calls that function
// flushes. The WAL writer does, and keeps what it promises of asynchronous commits.
void write_without_flush() {
    int delay = WalWriterDelay;
    int flush_after = WalWriterFlushAfter;
    WalWriterDelay = INT_MAX;
    WalWriterFlushAfter = INT_MAX;
    XLogBackgroundFlush();
    WalWriterDelay = delay;
    WalWriterFlushAfter = flush_after;
}

}  // namespace

void write_wal(XLogRecPtr upto) {
    for (int round = 0; round < kRounds; ++round) {
        if (GetXLogWriteRecPtr() >= upto) return;
        XLogRecPtr insert = GetXLogInsertRecPtr();
        bool complete = page_of(insert) >= upto;
        if (!complete && flushed_to() < page_of(insert)) fill_page(insert);
        write_without_flush();
    }
    // Slower, and promises more.
    XLogFlush(upto);
}

}  // namespace pgmqtt::pg
