// pgmqtt.snapshot_mapping(): the rows that are there now, into the stream of changes.
//
// A row that is read and then published somewhere else in time than it was read undoes what was
// committed in between. So the writers of the table are held up from before the rows are read until
// this transaction commits, and the rows go through the WAL: whoever wrote before stands before the
// commit record, whoever writes afterwards behind it.
#include "pg/backend.h"

extern "C" {
#include <access/transam.h>
#include <access/xact.h>
#include <catalog/pg_class.h>
#include <catalog/pg_inherits.h>
#include <catalog/pg_type.h>
#include <executor/spi.h>
#include <lib/stringinfo.h>
#include <storage/lmgr.h>
#include <tcop/dest.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
#include <utils/snapmgr.h>
#include <utils/timestamp.h>
}

#include "cdc/change.h"
#include "cdc/mapping_table.h"
#include "cdc/snapshot_message.h"
#include "cdc/source.h"
#include "cdc/source_rows.h"
#include "cdc/source_scan.h"
#include "cdc/status.h"
#include "pg/guard.h"
#include "pg/shared.h"
#include "pg/table_owner.h"
#include "pg/transaction.h"

// Plain bodies: the server's errors pass through.
namespace pgmqtt::cdc {

namespace {

// Decoding reads 4096 messages back at once from what it spilled.
constexpr int kMessageSize = 8 << 10;
constexpr int kPatienceMs = 10000;
constexpr long kPollMs = 2;

struct Mapped {
    int id;
    Oid source;
    Oid owner;
};

// `lock`: so that it is neither dropped nor switched off before this transaction has ended.
Mapped find_mapping(const char* name, bool lock) {
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    const char* query = psprintf(
        "SELECT id, source::oid, owner::oid, enabled, xmin FROM pgmqtt.mapping WHERE name = $1%s",
        lock ? " FOR SHARE" : "");
    pg::ActAs saved = pg::act_as_table_owner("mapping");
    SPI_execute_with_args(query, 1, types, values, nullptr, false, 1);
    pg::act_as_before(saved);
    if (SPI_processed == 0) {
        ereport(ERROR,
                (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("mapping \"%s\" does not exist", name),
                 errhint("SELECT name FROM pgmqtt.mappings.")));
    }
    Datum columns[5];
    bool is_null;
    for (int i = 0; i < 5; ++i) {
        columns[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &is_null);
    }
    if (!DatumGetBool(columns[3])) {
        ereport(ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("mapping \"%s\" is off", name),
                 errhint("SELECT pgmqtt.alter_mapping(%s, true).", quote_literal_cstr(name))));
    }
    if (TransactionIdIsCurrentTransactionId(DatumGetTransactionId(columns[4]))) {
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("mapping \"%s\" is not in force yet", name),
                        errdetail("This transaction added it or switched it on."),
                        errhint("Take the snapshot in another transaction, after COMMIT.")));
    }
    return {DatumGetInt32(columns[0]), DatumGetObjectId(columns[1]), DatumGetObjectId(columns[2])};
}

// --- is anybody there to publish it?

[[noreturn]] void raise_no_stream(const char* detail, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("nothing is published from tables at the moment"),
                    errdetail("%s", detail), errhint("%s", hint)));
    pg_unreachable();
}

void check_stream_is_possible() {
    StatusCopy stream = {};
    pg::Shared* memory = pg::shared();
    if (memory->cdc_state == static_cast<int>(pg::CdcState::kDisabled)) {
        bool known = read_status(pg::MappingStatus::kStream, stream);
        raise_no_stream(psprintf("Mappings are disabled: %s.", known ? stream.message : "unknown"),
                        "When that is mended, take the snapshot again.");
    }
    int waits_for = memory->cdc_waits_for_pid;
    if (waits_for != 0 && waits_for == MyProcPid) {
        raise_no_stream("The replication slot can begin when this transaction has ended.",
                        "Take the snapshot in a transaction of its own.");
    }
}

// The worker is decoding, and what mappings it knows includes this one: then this transaction,
// which has not committed, is behind where it begins.
void wait_for_stream() {
    pg::Shared* memory = pg::shared();
    uint64_t configuration = memory->configuration;
    TimestampTz start = GetCurrentTimestamp();
    while (memory->cdc_state != static_cast<int>(pg::CdcState::kStreaming) ||
           memory->cdc_configuration < configuration) {
        check_stream_is_possible();
        if (TimestampDifferenceExceeds(start, GetCurrentTimestamp(), kPatienceMs)) {
            raise_no_stream("The pgmqtt cdc worker has not got to the mapping.",
                            "See the status in pgmqtt.mappings, and the server log.");
        }
        WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kPollMs,
                  PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

// --- the rows

// In the order in which writers lock: the root, then its partitions.
List* hold_up_writers(Oid source) {
    LockRelationOid(source, ShareLock);
    if (get_rel_relkind(source) == RELKIND_PARTITIONED_TABLE) {
        return find_all_inheritors(source, ShareLock, nullptr);
    }
    return list_make1_oid(source);
}

// Takes rows from the executor or from a scan, and writes them as messages.
struct RowWriter {
    DestReceiver receiver;  // first: the server knows no more of it
    SnapshotHead head;
    StringInfoData message;
    uint64 rows;

    void begin_message() {
        resetStringInfo(&message);
        appendBinaryStringInfo(&message, reinterpret_cast<const char*>(&head), sizeof head);
    }
    void end_message() {
        if (static_cast<size_t>(message.len) == sizeof head) return;
        pg::log_logical_message(kSnapshotPrefix, message.data, static_cast<size_t>(message.len));
        begin_message();
    }
    void add(HeapTupleHeader tuple, uint32_t length, Oid partition) {
        SnapshotRow row = {length, partition};
        size_t size = sizeof row + aligned(row.length);
        if (static_cast<size_t>(message.len) + size > kMessageSize) end_message();
        if (size > MaxAllocSize - sizeof head) {
            ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                            errmsg("a row of %zu bytes is too large for a snapshot", size)));
        }
        enlargeStringInfo(&message, static_cast<int>(size));
        appendBinaryStringInfo(&message, reinterpret_cast<const char*>(&row), sizeof row);
        appendBinaryStringInfo(&message, reinterpret_cast<const char*>(tuple),
                               static_cast<int>(row.length));
        constexpr char kPadding[8] = {};
        appendBinaryStringInfo(&message, kPadding,
                               static_cast<int>(aligned(row.length) - row.length));
        ++rows;
    }
};

bool take_row(TupleTableSlot* slot, DestReceiver* receiver) {
    auto* writer = reinterpret_cast<RowWriter*>(receiver);
    bool is_null;
    Datum row = slot_getattr(slot, 1, &is_null);
    if (is_null) return true;
    Datum partition = slot_getattr(slot, 2, &is_null);
    HeapTupleHeader tuple = DatumGetHeapTupleHeader(row);
    writer->add(tuple, HeapTupleHeaderGetDatumLength(tuple), DatumGetObjectId(partition));
    return true;
}

void begin_writer(RowWriter& writer, const Mapped& mapped) {
    writer = {};
    writer.receiver.receiveSlot = take_row;
    writer.receiver.rStartup = [](DestReceiver*, int, TupleDesc) {};
    writer.receiver.rShutdown = [](DestReceiver*) {};
    writer.receiver.rDestroy = [](DestReceiver*) {};
    writer.receiver.mydest = DestNone;
    pg::ActAs saved = pg::act_as_table_owner("mapping");
    SnapshotKey key = read_snapshot_key();
    pg::act_as_before(saved);
    uint64 xid = U64FromFullTransactionId(GetTopFullTransactionId());
    writer.head = {make_snapshot_token(key.data, key.size, xid), mapped.id, mapped.source};
    initStringInfo(&writer.message);
    writer.begin_message();
}

// The caller gives the predicate, and so runs it. Writes of what it calls would come before or
// behind rows by chance.
void query_rows(const Mapped& mapped, const char* predicate, RowWriter& writer) {
    check_sees_all(mapped.source, "Leave out the predicate, or use a role with BYPASSRLS.");
    bool read_only = XactReadOnly;
    XactReadOnly = true;
    SPIExecuteOptions options = {};
    options.read_only = true;
    options.dest = &writer.receiver;
    int result = SPI_execute_extended(rows_query(mapped.source, predicate), &options);
    if (result < 0) elog(ERROR, "could not read rows: %s", SPI_result_code_string(result));
    XactReadOnly = read_only;
}

uint64 write_rows(const Mapped& mapped, List* tables, const char* predicate) {
    RowWriter writer;
    begin_writer(writer, mapped);
    // Whatever the isolation level: what is committed now, with the writers held up.
    PushActiveSnapshot(GetLatestSnapshot());
    if (predicate != nullptr) {
        query_rows(mapped, predicate, writer);
    } else {
        // The mapping's owner may read all of it: check_source().
        TakeRow take = [](void* context, HeapTuple row, Oid table) {
            static_cast<RowWriter*>(context)->add(row->t_data, row->t_len, table);
        };
        scan_source(mapped.source, tables, take, &writer);
    }
    writer.end_message();
    PopActiveSnapshot();
    return writer.rows;
}

}  // namespace

}  // namespace pgmqtt::cdc

PGMQTT_FUNCTION(pgmqtt_snapshot_mapping) {
    using namespace pgmqtt;
    if (PG_ARGISNULL(0)) {
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name must not be NULL")));
    }
    const char* predicate = PG_ARGISNULL(1) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(1));
    pg::require_preload();
    pg::require_served_database();
    PreventCommandIfReadOnly("pgmqtt.snapshot_mapping()");
    PreventCommandIfParallelMode("pgmqtt.snapshot_mapping()");
    SPI_connect();
    const char* name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    // A slot that is being made waits for whoever has a transaction id, and the lock takes one.
    cdc::find_mapping(name, false);
    cdc::wait_for_stream();
    cdc::Mapped mapped = cdc::find_mapping(name, true);
    cdc::wait_for_stream();
    List* tables = cdc::hold_up_writers(mapped.source);
    cdc::check_source(mapped.source, mapped.owner);
    uint64 rows = cdc::write_rows(mapped, tables, predicate);
    if (predicate == nullptr) cdc::close_gap(name);
    SPI_finish();
    pg::at_commit(pg::Event::kChanges);
    PG_RETURN_INT64(static_cast<int64>(rows));
}
