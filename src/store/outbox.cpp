#include "store/outbox.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
#include <access/transam.h>
#include <utils/snapmgr.h>
#include <utils/timestamp.h>
#include <utils/xid8.h>
}

#include <algorithm>

#include "pg/datum.h"

namespace pgmqtt::store {
namespace {

constexpr int kRowsPerBatch = 1000;
constexpr size_t kBytesPerBatch = 1 << 20;

// Nobody but us gives numbers, unless somebody does: ALTER SEQUENCE, a restored table.
constexpr std::chrono::seconds kBeginAnew{60};

broker::PublishRecord record_of_row(HeapTuple row, TupleDesc desc) {
    bool null;
    broker::PublishRecord record;
    broker::MessageView& message = record.message;
    message.topic = pg::varlena_view(SPI_getbinval(row, desc, 4, &null));
    message.payload = pg::varlena_view(SPI_getbinval(row, desc, 5, &null));
    message.qos = static_cast<mqtt::Qos>(DatumGetInt16(SPI_getbinval(row, desc, 6, &null)));
    message.retain = DatumGetBool(SPI_getbinval(row, desc, 7, &null));
    message.properties = pg::varlena_view(SPI_getbinval(row, desc, 8, &null));
    message.received_at = pg::wall_time(SPI_getbinval(row, desc, 9, &null));
    message.expires_at = pg::wall_time(SPI_getbinval(row, desc, 10, &null));
    return record;
}

}  // namespace

// unnest() of several arrays is a form of its own only where it is not qualified; search_path is
// pinned in the workers.
//
// A transaction whose publishes were all rolled back to a savepoint leaves a lonely row in
// outbox_commit: the LEFT JOIN brings it along to be removed.
Outbox::Outbox()
    : next_(
          "SELECT c.seq, c.xid, o.id, o.topic, o.payload, o.qos, o.retain, o.properties, o.at, "
          "o.expires_at FROM pgmqtt.outbox_commit c LEFT JOIN pgmqtt.outbox o USING (xid) "
          "WHERE c.seq > $2 ORDER BY c.seq, o.id LIMIT $1",
          {INT4OID, INT8OID}),
      remove_(
          "DELETE FROM pgmqtt.outbox WHERE ctid = ANY (ARRAY("
          "SELECT t.ctid FROM unnest($1, $2) AS done(xid, id) "
          "CROSS JOIN LATERAL (SELECT o.ctid FROM pgmqtt.outbox o "
          "WHERE o.xid = done.xid AND o.id = done.id OFFSET 0) t))",
          {XID8ARRAYOID, INT8ARRAYOID}),
      // Only when nothing of the transaction is left: a long one goes in several batches.
      remove_commits_(
          "DELETE FROM pgmqtt.outbox_commit c WHERE c.seq = ANY ($1) "
          "AND NOT EXISTS (SELECT FROM pgmqtt.outbox o WHERE o.xid = c.xid)",
          {INT8ARRAYOID}) {}

bool Outbox::fetch(broker::BatchWriter& batch) {
    base::MonoTime now = base::read_clocks().mono;
    if (now - begun_anew_at_ > kBeginAnew) {
        begin_anew();
        begun_anew_at_ = now;
    }
    Datum values[] = {Int32GetDatum(kRowsPerBatch), Int64GetDatum(floor_)};
    uint64 count = next_.execute(values, nullptr, true);
    fetched_.reserve(count);
    bool null;
    raise_floor(count > 0, count == 0
                               ? 0
                               : DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
                                                             SPI_tuptable->tupdesc, 1, &null)));
    for (uint64 i = 0; i < count; ++i) {
        if (batch.size() >= kBytesPerBatch) return true;
        HeapTuple row = SPI_tuptable->vals[i];
        TupleDesc desc = SPI_tuptable->tupdesc;
        int64 seq = DatumGetInt64(SPI_getbinval(row, desc, 1, &null));
        FullTransactionId xid = DatumGetFullTransactionId(SPI_getbinval(row, desc, 2, &null));
        Datum id = SPI_getbinval(row, desc, 3, &null);
        fetched_.push_back({U64FromFullTransactionId(xid), null ? -1 : DatumGetInt64(id), seq});
        if (!null) batch.add(record_of_row(row, desc));
    }
    return count == kRowsPerBatch;
}

// The transaction that got a number had its id before: its row in the outbox was written.
void Outbox::raise_floor(bool found, int64_t first) {
    TransactionId oldest_running = GetActiveSnapshot()->xmin;
    auto bound_xid = static_cast<TransactionId>(bound_xid_);
    if (bound_ > 0 && TransactionIdFollowsOrEquals(oldest_running, bound_xid)) {
        floor_ = std::max(floor_, found ? std::min(bound_, first - 1) : bound_);
        bound_ = 0;
    }
    if (bound_ > 0 || !found) return;
    bound_ = first;
    bound_xid_ = U64FromFullTransactionId(ReadNextFullTransactionId());
}

void Outbox::remove_fetched() {
    size_t count = fetched_.size();
    if (count == 0) return;
    Datum* xids = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    Datum* ids = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    Datum* commits = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    int rows = 0;
    int transactions = 0;
    int64 last_seq = -1;
    for (const Row& row : fetched_) {
        Datum xid = FullTransactionIdGetDatum(FullTransactionIdFromU64(row.xid));
        if (row.id >= 0) {
            xids[rows] = xid;
            ids[rows++] = Int64GetDatum(row.id);
        }
        if (row.seq == last_seq) continue;
        last_seq = row.seq;
        commits[transactions++] = Int64GetDatum(row.seq);
    }
    Datum done[] = {pg::array_datum(xids, rows, XID8OID), pg::array_datum(ids, rows, INT8OID)};
    if (rows > 0) remove_.execute(done);
    Datum commit_rows = pg::array_datum(commits, transactions, INT8OID);
    remove_commits_.execute(&commit_rows);
}

}  // namespace pgmqtt::store
