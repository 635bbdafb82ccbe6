// What the log says, read again: at the start and whenever the counts are in doubt. And its
// truncation.
#include "store/queue_log.h"

extern "C" {
#include <executor/spi.h>
#include <storage/bufmgr.h>
#include <storage/lockdefs.h>
#include <utils/rel.h>
#include <utils/fmgrprotos.h>
}

#include <algorithm>
#include <unordered_set>

#include "pg/failpoint.h"
#include "pg/log.h"
#include "pg/transaction.h"

namespace pgmqtt::store {

using broker::QueueEntry;

struct QueueLog::Loaded {
    struct Slot {
        uint32_t file = 0;
        uint64_t bytes = 0;
        bool seen = false;
    };
    std::vector<QueueRun> runs;
    std::unordered_set<uint64_t> sessions;
    Slot slots[kSegments];
};

namespace {

// With TOAST, without what is reserved but empty. Without rows: 0.
uint64_t size_of(Oid table, uint32_t& file) {
    pg::TableReader reader(table);
    file = pg::file_of(reader.table());
    bool empty = RelationGetNumberOfBlocks(reader.table()) == 0;
    reader.close();
    if (empty) return 0;
    return static_cast<uint64_t>(
        DatumGetInt64(DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(table))));
}

void read_sessions(std::unordered_set<uint64_t>& sessions) {
    SPI_execute("SELECT session_id FROM pgmqtt.session", true, 0);
    for (uint64 i = 0; i < SPI_processed; ++i) {
        bool null = false;
        Datum id = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &null);
        sessions.insert(static_cast<uint64_t>(DatumGetInt64(id)));
    }
}

}  // namespace

pg::Status QueueLog::load() {
    Loaded loaded;
    pg::Status status =
        pg::transaction({.read_only = true, .activity = "pgmqtt: reading the queue"}, [&] {
            read_sessions(loaded.sessions);
            for (int slot = 0; slot < kSegments; ++slot) {
                SegmentName name(kind_, slot);
                uint32_t ignored;
                Loaded::Slot& table = loaded.slots[slot];
                table.bytes = size_of(pg::table_id(name.message), table.file);
                table.bytes += size_of(pg::table_id(name.queue), ignored);
            }
            read_runs(kind_, loaded.runs);
            pg::failpoint_in_guard(pg::Failpoint::kStoreLoad);
        });
    if (!status) return status;
    take_over(loaded);
    loaded_ = true;
    doubt_ = false;
    return status;
}

void QueueLog::take_over(Loaded& loaded) {
    sort_runs(loaded.runs);
    ledger_.clear();
    index_.clear();
    for (const QueueRun& run : loaded.runs) loaded.slots[run.slot].seen = true;
    auto begin = [&](int slot) {
        ledger_.begin_segment(slot);
        ledger_.wrote(loaded.slots[slot].bytes);
        index_.begin(slot, loaded.slots[slot].file);
    };
    // What an interrupted transaction left behind, or a hand: to be truncated.
    for (int slot = 0; slot < kSegments; ++slot)
        if (loaded.slots[slot].bytes > 0 && !loaded.slots[slot].seen) begin(slot);
    broker::QueueReplay replay;
    bool malformed = false;
    for (const QueueRun& run : loaded.runs) {
        if (is_free(run.slot)) begin(run.slot);
        uint64_t added = replay.added();
        if (!replay.add(run.entries)) malformed = true;
        ledger_.add_id(replay.last_id());
        ledger_.add_count(replay.added() - added);
        next_batch_ = std::max(next_batch_, run.batch + 1);
    }
    if (malformed) pg::log(WARNING, "pgmqtt found damaged rows in its queue and passed over them");
    replay.for_each([&](const QueueEntry& entry) {
        if (entry.kind == QueueEntry::Kind::kReceived) {
            // They end with their session.
            if (loaded.sessions.contains(entry.session_id))
                ledger_.restore_received(entry.session_id, static_cast<uint16_t>(entry.number),
                                         entry.message_id);
            return;
        }
        ledger_.restore_delivery(entry.session_id, entry.number, entry.message_id);
        int slot = slot_of(entry.place);
        if (slot >= 0) index_.add(slot, entry.message_id, row_of(entry.place));
    });
}

// TRUNCATE takes the strongest lock there is. Whoever reads a segment (pg_dump, an open query) is
// not waited for, and nobody waits for us.
pg::Status QueueLog::truncate() {
    size_t count = 0;
    size_t drained = ledger_.drained();
    pg::Status status = pg::transaction({.activity = "pgmqtt: truncating the queue"}, [&] {
        for (; count < drained; ++count) {
            SegmentName name(kind_, ledger_.segments()[count].slot);
            if (!pg::try_lock(pg::table_id(name.message), AccessExclusiveLock) ||
                !pg::try_lock(pg::table_id(name.queue), AccessExclusiveLock))
                return;
            char sql[256];
            snprintf(sql, sizeof sql, "TRUNCATE pgmqtt.%s, pgmqtt.%s", name.message, name.queue);
            if (SPI_execute(sql, false, 0) < 0) elog(ERROR, "could not run \"%s\"", sql);
            pg::failpoint_in_guard(pg::Failpoint::kStoreTruncate);
        }
    });
    if (!status) return status;
    if (count > 0) pg::failpoint(pg::Failpoint::kStoreTruncated);
    for (size_t i = 0; i < count; ++i) index_.begin(ledger_.segments()[i].slot, 0);
    ledger_.drop_oldest(count);
    return status;
}

}  // namespace pgmqtt::store
