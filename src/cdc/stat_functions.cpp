// pgmqtt.stat_cdc and pgmqtt.stat_mappings: what the cdc worker left in shared memory.
#include "pg/backend.h"

extern "C" {
#include <access/htup_details.h>
#include <access/xlog.h>
#include <funcapi.h>
#include <utils/builtins.h>
#include <utils/pg_lsn.h>
#include <utils/timestamp.h>
}

#include "cdc/status.h"
#include "cdc/wal_reader.h"
#include "pg/guard.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

namespace {

constexpr int kMaxColumns = 20;

// The columns of a row, one after the other.
struct Row {
    TupleDesc columns;
    int count;
    Datum values[kMaxColumns];
    bool nulls[kMaxColumns];

    void add(Datum value, bool is_null = false) {
        values[count] = value;
        nulls[count++] = is_null;
    }
    void add_null() { add(Datum{0}, true); }
    void add_count(uint64_t value) { add(Int64GetDatum(static_cast<int64>(value))); }
    void add_lsn(uint64_t lsn) { add(LSNGetDatum(lsn), lsn == InvalidXLogRecPtr); }
    void add_time(int64_t at) { add(TimestampTzGetDatum(at), at == 0); }
    void add_seconds(double seconds) { add(Float8GetDatum(seconds)); }
    void add_times(const pg::BatchTimes::Percentiles& times) {
        add(Float8GetDatum(times.p50 / 1000.0), times.p99 == 0);
        add(Float8GetDatum(times.p99 / 1000.0), times.p99 == 0);
    }
};

void begin_row(FunctionCallInfo fcinfo, int columns, Row& row) {
    row = {};
    if (get_call_result_type(fcinfo, nullptr, &row.columns) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "return type must be a row type");
    }
    if (row.columns->natts != columns) {
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the library and the extension's SQL are of different versions"),
                        errhint("Run ALTER EXTENSION pgmqtt UPDATE, or restart the server.")));
    }
}

Datum finish_row(Row& row) {
    Assert(row.count == row.columns->natts);
    return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row.columns), row.values, row.nulls));
}

const char* state_name(pg::CdcState state) {
    switch (state) {
        case pg::CdcState::kStopped:
            return "stopped";
        case pg::CdcState::kStarting:
            return "starting";
        case pg::CdcState::kStreaming:
            return "streaming";
        case pg::CdcState::kDisabled:
            return "disabled";
    }
    return "";
}

pg::CdcState current_state() {
    const pg::Shared* shared = pg::shared();
    if (shared->workers[static_cast<int>(pg::Worker::kCdc)].pid == 0) return pg::CdcState::kStopped;
    return static_cast<pg::CdcState>(shared->cdc_state.load());
}

// Nothing is known of a stream that does not flow.
void add_lag_seconds(Row& row) {
    if (current_state() != pg::CdcState::kStreaming) return row.add_null();
    int64_t current = pg::shared()->cdc_current_at;
    TimestampTz now = GetCurrentTimestamp();
    double micros = current == 0 || current > now ? 0 : static_cast<double>(now - current);
    row.add_seconds(micros / USECS_PER_SEC);
}

void add_lag_bytes(Row& row) {
    uint64_t confirmed = pg::shared()->cdc_confirmed_lsn;
    if (current_state() != pg::CdcState::kStreaming || confirmed == 0 || RecoveryInProgress()) {
        return row.add_null();
    }
    XLogRecPtr flushed = flushed_wal();
    row.add_count(flushed > confirmed ? flushed - confirmed : 0);
}

}  // namespace

}  // namespace pgmqtt::cdc

PGMQTT_FUNCTION(pgmqtt_stat_cdc) {
    using namespace pgmqtt;
    constexpr int kColumns = 18;
    pg::require_preload();
    const pg::Shared* shared = pg::shared();
    cdc::Row row;
    cdc::begin_row(fcinfo, kColumns, row);
    row.add(CStringGetTextDatum(cdc::state_name(cdc::current_state())));
    row.add_time(shared->cdc_started_at);
    row.add_count(shared->cdc_transactions);
    row.add_count(shared->cdc_changes);
    row.add_count(shared->cdc_published);
    row.add_count(shared->cdc_filtered);
    row.add_count(shared->cdc_errors);
    row.add_count(shared->cdc_times.count);
    row.add_times(shared->cdc_times.percentiles());
    row.add_lsn(shared->cdc_decoded_lsn);
    row.add_lsn(shared->cdc_confirmed_lsn);
    row.add_lsn(shared->cdc_commit_lsn);
    row.add_time(shared->cdc_commit_at);
    cdc::add_lag_bytes(row);
    cdc::add_lag_seconds(row);
    row.add_count(shared->cdc_waiting_bytes);
    row.add_count(shared->cdc_spilled_bytes);
    return cdc::finish_row(row);
}

// (id int): of a mapping that nobody knows of, all is NULL.
PGMQTT_FUNCTION(pgmqtt_stat_mapping) {
    using namespace pgmqtt;
    constexpr int kColumns = 8;
    pg::require_preload();
    cdc::Row row;
    cdc::begin_row(fcinfo, kColumns, row);
    cdc::StatusCopy copy = {};
    if (!cdc::read_status(PG_GETARG_INT32(0), copy)) {
        while (row.count < kColumns) row.add_null();
        return cdc::finish_row(row);
    }
    row.add_count(copy.rows);
    row.add_count(copy.published);
    row.add_count(copy.filtered);
    row.add_count(copy.errors);
    row.add_lsn(copy.commit_lsn);
    row.add_time(copy.commit_at);
    row.add_times(copy.times);
    return cdc::finish_row(row);
}
