// What the queue's log says, for SQL: pgmqtt.queued_deliveries() and received_packets().
#include "pg/backend.h"

extern "C" {
#include <funcapi.h>
#include <utils/tuplestore.h>
}

#include <iterator>
#include <vector>

#include "broker/queue_log.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "store/queue_segments.h"

namespace pgmqtt::store {
namespace {

using broker::QueueEntry;

Datum id_datum(uint64_t id) {
    return Int64GetDatum(static_cast<int64>(id));
}

void put_delivery(ReturnSetInfo* result, const QueueEntry& entry, LogKind kind) {
    const broker::StoredDelivery& delivery = entry.delivery;
    Datum values[] = {id_datum(entry.session_id),
                      id_datum(entry.number),
                      id_datum(entry.message_id),
                      Int16GetDatum(static_cast<int16>(delivery.state)),
                      BoolGetDatum(delivery.sent),
                      Int16GetDatum(static_cast<int16>(delivery.qos)),
                      BoolGetDatum(delivery.retain),
                      pg::bytea_datum(delivery.subscription_identifiers),
                      Int64GetDatum(delivery.bytes),
                      pg::timestamptz_datum(delivery.expires_at),
                      BoolGetDatum(kind == LogKind::kLogged)};
    bool nulls[std::size(values)] = {};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    pfree(DatumGetPointer(values[7]));
}

void put_received(ReturnSetInfo* result, const QueueEntry& entry) {
    Datum values[] = {id_datum(entry.session_id), Int32GetDatum(static_cast<int32>(entry.number)),
                      id_datum(entry.message_id)};
    bool nulls[std::size(values)] = {};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

// Entries of one log, each put within a guard.
template <class Put>
void put_log(LogKind kind, QueueEntry::Kind wanted, Put put) {
    std::vector<QueueRun> runs;
    pg::value_or_throw(pg::guard([&] { read_runs(kind, runs); }));
    sort_runs(runs);
    broker::QueueReplay replay;
    for (const QueueRun& run : runs) replay.add(run.entries);
    replay.for_each([&](const QueueEntry& entry) {
        if (entry.kind != wanted) return;
        pg::value_or_throw(pg::guard([&] { put(entry); }));
    });
}

ReturnSetInfo* begin_result(FunctionCallInfo fcinfo) {
    ReturnSetInfo* result = nullptr;
    pg::value_or_throw(pg::guard([&] {
        InitMaterializedSRF(fcinfo, 0);
        result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    }));
    return result;
}

}  // namespace
}  // namespace pgmqtt::store

PGMQTT_FUNCTION(pgmqtt_queued_deliveries) {
    using namespace pgmqtt::store;
    ReturnSetInfo* result = begin_result(fcinfo);
    for (LogKind kind : kLogKinds)
        put_log(kind, QueueEntry::Kind::kDelivery,
                [&](const QueueEntry& entry) { put_delivery(result, entry, kind); });
    return Datum{0};
}

PGMQTT_FUNCTION(pgmqtt_received_packets) {
    using namespace pgmqtt::store;
    ReturnSetInfo* result = begin_result(fcinfo);
    put_log(LogKind::kLogged, QueueEntry::Kind::kReceived,
            [&](const QueueEntry& entry) { put_received(result, entry); });
    return Datum{0};
}
