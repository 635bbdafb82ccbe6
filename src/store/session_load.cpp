#include "store/session_load.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
#include <storage/lockdefs.h>
#include <utils/timestamp.h>
}

#include <iterator>
#include <vector>

#include "broker/queue_log.h"
#include "pg/datum.h"
#include "pg/transaction.h"
#include "store/queue_segments.h"

namespace pgmqtt::store {
namespace {

using broker::StoreKind;
using broker::StoreRecord;
using Take = std::function<void(const StoreRecord&)>;

// Values of a row by column, from 1. May raise, as all here.
struct Row {
    HeapTuple tuple;
    TupleDesc desc;

    Datum at(int column) const {
        bool null;
        return SPI_getbinval(tuple, desc, column, &null);
    }
    uint64_t id(int column) const { return static_cast<uint64_t>(DatumGetInt64(at(column))); }
    uint32_t number(int column) const { return static_cast<uint32_t>(id(column)); }
    base::ByteView bytes(int column) const { return pg::varlena_view(at(column)); }
    bool flag(int column) const { return DatumGetBool(at(column)); }
    int16 small(int column) const { return DatumGetInt16(at(column)); }
    mqtt::Qos qos(int column) const { return static_cast<mqtt::Qos>(small(column)); }
    base::WallTime time(int column) const { return pg::wall_time(at(column)); }
};

// Seven columns from `first` on.
broker::MessageView message_of(const Row& row, int first) {
    return {.topic = row.bytes(first),
            .payload = row.bytes(first + 1),
            .qos = row.qos(first + 2),
            .retain = row.flag(first + 3),
            .properties = row.bytes(first + 4),
            .received_at = row.time(first + 5),
            .expires_at = row.time(first + 6)};
}

void read_session(const Row& row, StoreRecord& record) {
    record.session_id = row.id(1);
    record.session.client_id = row.bytes(2);
    record.session.username = row.bytes(3);
    record.session.created_at = row.time(4);
    record.session.disconnected_at = row.time(5);
    record.session.expiry_interval = row.number(6);
    record.session.will = message_of(row, 7);
    record.session.will_delay = row.number(14);
}

void read_subscription(const Row& row, StoreRecord& record) {
    record.session_id = row.id(1);
    record.subscription.filter = row.bytes(2);
    record.subscription.qos = row.qos(3);
    record.subscription.no_local = row.flag(4);
    record.subscription.retain_as_published = row.flag(5);
    record.subscription.retain_handling = static_cast<uint8_t>(row.small(6));
    record.subscription.identifier = row.number(7);
}

struct Source {
    StoreKind kind;
    const char* query;
    void (*read)(const Row&, StoreRecord&);
};

constexpr Source kSources[] = {
    {StoreKind::kSession,
     "SELECT session_id, client_id, username, created_at, disconnected_at, expiry_interval, "
     "will_topic, will_payload, will_qos, will_retain, will_properties, will_received_at, "
     "will_expires_at, will_delay FROM pgmqtt.session",
     read_session},
    {StoreKind::kSubscribe,
     "SELECT session_id, filter, qos, no_local, retain_as_published, retain_handling, "
     "subscription_id FROM pgmqtt.session_subscription",
     read_subscription},
};

// Nothing refers to rows that are not there; only a hand in these tables could have made such.
constexpr const char* kTidy =
    "DELETE FROM pgmqtt.session_subscription t WHERE NOT EXISTS "
    "(SELECT FROM pgmqtt.session s WHERE s.session_id = t.session_id)";

// By a cursor, and a few rows at a time freed together: the queue does not stand in memory twice.
void read_all(const Source& source, const Take& take) {
    constexpr long kRowsPerFetch = 1000;
    // Not read-only, so that it does not see what was just removed.
    Portal portal = SPI_cursor_open_with_args(nullptr, source.query, 0, nullptr, nullptr, nullptr,
                                              false, CURSOR_OPT_NO_SCROLL);
    MemoryContext detoasted =
        AllocSetContextCreate(CurrentMemoryContext, "pgmqtt loaded rows", ALLOCSET_DEFAULT_SIZES);
    for (;;) {
        SPI_cursor_fetch(portal, true, kRowsPerFetch);
        if (SPI_processed == 0) break;
        MemoryContext before = MemoryContextSwitchTo(detoasted);
        StoreRecord record;
        record.kind = source.kind;
        for (uint64 i = 0; i < SPI_processed; ++i) {
            source.read({SPI_tuptable->vals[i], SPI_tuptable->tupdesc}, record);
            take(record);
            MemoryContextReset(detoasted);
        }
        MemoryContextSwitchTo(before);
        SPI_freetuptable(SPI_tuptable);
    }
    MemoryContextDelete(detoasted);
    SPI_cursor_close(portal);
}

StoreRecord record_of(const broker::QueueEntry& entry, LogKind kind) {
    bool received = entry.kind == broker::QueueEntry::Kind::kReceived;
    StoreRecord record{.kind = received ? StoreKind::kReceived : StoreKind::kDelivery,
                       .session_id = entry.session_id,
                       .message_id = entry.message_id};
    if (kind == LogKind::kUnlogged) record.durability = broker::Durability::kUnlogged;
    if (received) {
        record.packet_id = static_cast<uint16_t>(entry.number);
    } else {
        record.sequence = entry.number;
        record.delivery = entry.delivery;
    }
    return record;
}

// Before the first row is given to anybody: who has to try again has taken nothing over.
void lock_all() {
    pg::lock(pg::table_id("session"), AccessShareLock);
    pg::lock(pg::table_id("session_subscription"), RowExclusiveLock);
    for (LogKind kind : kLogKinds)
        for (int slot = 0; slot < kSegments; ++slot)
            pg::lock(pg::table_id(SegmentName(kind, slot).queue), AccessShareLock);
}

// The runs of a log are let go as they are read: the queue does not stand in memory three times.
void replay(std::vector<QueueRun>& runs, broker::QueueReplay& queue) {
    sort_runs(runs);
    for (QueueRun& run : runs) {
        queue.add(run.entries);
        run.entries = {};
    }
}

}  // namespace

pg::Status load_sessions(const Take& take) {
    std::vector<QueueRun> runs[std::size(kLogKinds)];
    pg::Status status = pg::transaction({.activity = "pgmqtt: loading sessions"}, [&] {
        lock_all();
        SPI_execute(kTidy, false, 0);
        for (const Source& source : kSources) read_all(source, take);
        for (LogKind kind : kLogKinds) read_runs(kind, runs[static_cast<int>(kind)]);
    });
    if (!status) return status;
    for (LogKind kind : kLogKinds) {
        broker::QueueReplay queue;
        replay(runs[static_cast<int>(kind)], queue);
        queue.for_each([&](const broker::QueueEntry& entry) { take(record_of(entry, kind)); });
    }
    return status;
}

}  // namespace pgmqtt::store
