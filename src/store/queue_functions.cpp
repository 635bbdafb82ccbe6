// What the queue's log says, for SQL: pgmqtt.queued_deliveries(), received_packets() and
// queued_sessions().
#include "pg/backend.h"

extern "C" {
#include <funcapi.h>
#include <utils/timestamp.h>
#include <utils/tuplestore.h>
}

#include <iterator>
#include <map>
#include <vector>

#include "broker/queue_log.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "store/message_index.h"
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

template <class Take>
void for_each_entry(LogKind kind, QueueEntry::Kind wanted, Take take) {
    std::vector<QueueRun> runs;
    pg::value_or_throw(pg::guard([&] { read_runs(kind, runs); }));
    sort_runs(runs);
    broker::QueueReplay replay;
    for (const QueueRun& run : runs) replay.add(run.entries);
    replay.for_each([&](const QueueEntry& entry) {
        if (entry.kind == wanted) take(entry);
    });
}

// Each is put within a guard.
template <class Put>
void put_log(LogKind kind, QueueEntry::Kind wanted, Put put) {
    for_each_entry(kind, wanted, [&](const QueueEntry& entry) {
        pg::value_or_throw(pg::guard([&] { put(entry); }));
    });
}

// --- per session

struct Waiting {
    int64 count = 0;
    int64 bytes = 0;
    uint64_t oldest[std::size(kLogKinds)] = {};  // message ids; 0: none
};

// In a log the first delivery of a session is the oldest one, and the only one that is looked at.
void count_waiting(LogKind kind, MessageIndex& index, std::map<uint64_t, Waiting>& sessions) {
    for_each_entry(kind, QueueEntry::Kind::kDelivery, [&](const QueueEntry& entry) {
        Waiting& waiting = sessions[entry.session_id];
        ++waiting.count;
        waiting.bytes += entry.delivery.bytes;
        uint64_t& oldest = waiting.oldest[static_cast<int>(kind)];
        int slot = slot_of(entry.place);
        if (oldest != 0 || slot < 0) return;
        oldest = entry.message_id;
        index.add(slot, entry.message_id, row_of(entry.place));
    });
}

void put_waiting(ReturnSetInfo* result, uint64_t session_id, const Waiting& waiting,
                 MessageReader* const* readers) {
    TimestampTz oldest = DT_NOEND;
    for (LogKind kind : kLogKinds) {
        uint64_t id = waiting.oldest[static_cast<int>(kind)];
        TupleTableSlot* row = id == 0 ? nullptr : readers[static_cast<int>(kind)]->read(id);
        if (row == nullptr) continue;
        bool null = false;
        constexpr int kReceivedAt = 7;
        oldest = Min(oldest, DatumGetTimestampTz(slot_getattr(row, kReceivedAt, &null)));
    }
    Datum values[] = {id_datum(session_id), Int64GetDatum(waiting.count),
                      Int64GetDatum(waiting.bytes), TimestampTzGetDatum(oldest)};
    bool nulls[std::size(values)] = {false, false, false, oldest == DT_NOEND};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
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

PGMQTT_FUNCTION(pgmqtt_queued_sessions) {
    using namespace pgmqtt::store;
    ReturnSetInfo* result = begin_result(fcinfo);
    std::map<uint64_t, Waiting> sessions;
    MessageIndex indexes[std::size(kLogKinds)];
    for (LogKind kind : kLogKinds) count_waiting(kind, indexes[static_cast<int>(kind)], sessions);
    pgmqtt::pg::value_or_throw(pgmqtt::pg::guard([&] {
        MessageReader logged(LogKind::kLogged, indexes[0]);
        MessageReader unlogged(LogKind::kUnlogged, indexes[1]);
        MessageReader* readers[] = {&logged, &unlogged};
        for (const auto& [id, waiting] : sessions) put_waiting(result, id, waiting, readers);
        logged.close();
        unlogged.close();
    }));
    return Datum{0};
}
