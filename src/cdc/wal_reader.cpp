#include "cdc/wal_reader.h"

extern "C" {
#include <access/xlog.h>
#include <access/xlog_internal.h>
#include <access/xlogutils.h>
}

namespace pgmqtt::cdc {

namespace {

// Called from the server's WAL reader: plain values only, an ERROR passes through.
int read_page(XLogReaderState* reader, XLogRecPtr page, int wanted, XLogRecPtr, char* buffer) {
    TimeLineID timeline;
    XLogRecPtr end = GetFlushRecPtr(&timeline);
    if (page + static_cast<XLogRecPtr>(wanted) > end) return -1;
    // After a promotion the slot may stand on the timeline before.
    XLogReadDetermineTimeline(reader, page, static_cast<uint32>(wanted), timeline);
    int count = page + XLOG_BLCKSZ <= end ? XLOG_BLCKSZ : static_cast<int>(end - page);
    WALReadError error;
    if (!WALRead(reader, buffer, page, static_cast<Size>(count), reader->currTLI, &error)) {
        WALReadRaiseError(&error);
    }
    return count;
}

}  // namespace

XLogReaderRoutine* wal_reader_routine() {
    static XLogReaderRoutine routine = {read_page, wal_segment_open, wal_segment_close};
    return &routine;
}

XLogRecPtr flushed_wal() {
    return GetFlushRecPtr(nullptr);
}

XLogRecPtr flush_inserted_wal() {
    // Where the next record goes: behind the header of a page that nobody has begun to write, when
    // the last record ends with its page. To flush up to there is an ERROR.
    XLogRecPtr inserted = GetXLogInsertRecPtr();
    if (XLogSegmentOffset(inserted, wal_segment_size) == SizeOfXLogLongPHD) {
        inserted -= SizeOfXLogLongPHD;
    } else if (inserted % XLOG_BLCKSZ == SizeOfXLogShortPHD) {
        inserted -= SizeOfXLogShortPHD;
    }
    if (inserted > flushed_wal()) XLogFlush(inserted);
    return flushed_wal();
}

}  // namespace pgmqtt::cdc
