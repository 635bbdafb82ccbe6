// pgmqtt.preview_mapping(): the rows that are there now, through a mapping's expressions.
#include "pg/backend.h"

extern "C" {
#include <access/xact.h>
#include <access/xlog.h>
#include <executor/spi.h>
#include <funcapi.h>
#include <utils/acl.h>
#include <utils/array.h>
#include <catalog/pg_type.h>
#include <utils/builtins.h>
#include <utils/fmgroids.h>
#include <utils/pg_lsn.h>
#include <utils/portal.h>
#include <utils/tuplestore.h>
}

#include "cdc/mapping.h"
#include "cdc/source.h"
#include "cdc/source_rows.h"
#include "pg/guard.h"
#include "pg/table_owner.h"
#include "pg/transaction.h"

// Plain bodies: the server's errors pass through.
namespace pgmqtt::cdc {

namespace {

constexpr long kFetch = 100;

struct Previewed {
    Oid source;
    Oid owner;
    int qos;
    const char* search_path;
    cdc::MappingExpressions::Texts texts;
    cdc::MappingExpressions expressions;
    ParamListInfo values;
};

const char* column_text(int number) {
    return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number);
}

Datum column_value(int number) {
    bool is_null;
    return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, &is_null);
}

ArrayType* array_or_null(int number) {
    bool is_null;
    Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, &is_null);
    return is_null ? nullptr : DatumGetArrayTypeP(value);
}

void read_mapping(const char* name, Previewed& previewed) {
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    pg::ActAs saved = pg::act_as_table_owner("mapping");
    SPI_execute_with_args(
        "SELECT source::oid, owner::oid, qos, search_path, topic, payload, filter, retain, calls"
        " FROM pgmqtt.mapping WHERE name = $1",
        1, types, values, nullptr, true, 1);
    pg::act_as_before(saved);
    if (SPI_processed == 0) {
        ereport(ERROR,
                (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("mapping \"%s\" does not exist", name)));
    }
    previewed.source = DatumGetObjectId(column_value(1));
    previewed.owner = DatumGetObjectId(column_value(2));
    previewed.qos = DatumGetInt32(column_value(3));
    previewed.search_path = column_text(4);
    previewed.texts = {column_text(5),
                       column_text(6),
                       column_text(7),
                       nullptr,
                       DatumGetBool(column_value(8)),
                       cdc::known_calls(array_or_null(9))};
    // The expressions run with the owner's rights, and may read more than the source.
    if (has_privs_of_role(GetUserId(), previewed.owner)) return;
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("must be member of role \"%s\" to preview mapping \"%s\"",
                           GetUserNameFromId(previewed.owner, false), name)));
}

// Runs as the caller, who gives the predicate. What is hidden from him would be missing unsaid.
Portal open_rows(const Previewed& previewed, const char* predicate) {
    check_sees_all(previewed.source,
                   "The mapping publishes them all. Preview it as the table's owner or a role with "
                   "BYPASSRLS.");
    const char* query = rows_query(previewed.source, predicate);
    return SPI_cursor_open_with_args(nullptr, query, 0, nullptr, nullptr, nullptr, true, 0);
}

Datum payload_text(const cdc::Expression& payload, Datum value) {
    switch (payload.kind) {
        case cdc::PayloadKind::kBytes:
            return CStringGetTextDatum(OidOutputFunctionCall(F_BYTEAOUT, value));
        case cdc::PayloadKind::kJsonb:
            return CStringGetTextDatum(OidOutputFunctionCall(F_JSONB_OUT, value));
        case cdc::PayloadKind::kText:
        case cdc::PayloadKind::kJson:
            break;
    }
    return value;
}

// True when the row is published.
bool preview_row(Previewed& previewed, Datum row, ReturnSetInfo* result) {
    cdc::MappingExpressions& expressions = previewed.expressions;
    cdc::set_value(previewed.values, cdc::kNew, row);
    bool is_null = false;
    if (expressions.filter.given()) {
        Datum pass = expressions.filter.evaluate(previewed.values, &is_null);
        if (is_null || !DatumGetBool(pass)) return false;
    }
    Datum values[4] = {};
    bool nulls[4] = {};
    values[0] = expressions.topic.evaluate(previewed.values, &nulls[0]);
    values[1] = expressions.payload.evaluate(previewed.values, &nulls[1]);
    if (!nulls[1]) values[1] = payload_text(expressions.payload, values[1]);
    values[2] = Int32GetDatum(previewed.qos);
    values[3] = BoolGetDatum(previewed.texts.retain);
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    expressions.reset();
    return true;
}

// As the owner and read only, as the cdc worker evaluates.
void preview_rows(Previewed& previewed, Portal rows, long limit, ReturnSetInfo* result) {
    long shown = 0;
    while (shown < limit) {
        SPI_cursor_fetch(rows, true, kFetch);
        SPITupleTable* table = SPI_tuptable;
        uint64 count = SPI_processed;
        if (count == 0) break;
        pg::ActAs saved = pg::act_as(previewed.owner, previewed.search_path);
        bool read_only = XactReadOnly;
        XactReadOnly = true;
        for (uint64 i = 0; i < count && shown < limit; ++i) {
            bool is_null;
            Datum partition = SPI_getbinval(table->vals[i], table->tupdesc, 2, &is_null);
            cdc::set_value(previewed.values, cdc::kPartition, partition);
            Datum row = SPI_getbinval(table->vals[i], table->tupdesc, 1, &is_null);
            if (!is_null && preview_row(previewed, row, result)) ++shown;
        }
        XactReadOnly = read_only;
        pg::act_as_before(saved);
        SPI_freetuptable(table);
        CHECK_FOR_INTERRUPTS();
    }
}

void prepare(Previewed& previewed) {
    pg::ActAs saved = pg::act_as(previewed.owner, previewed.search_path);
    previewed.expressions.prepare(previewed.source, previewed.texts);
    previewed.values = cdc::make_values(previewed.expressions.scope);
    previewed.expressions.begin(previewed.values);
    pg::act_as_before(saved);
    cdc::set_value(previewed.values, cdc::kOp, CStringGetTextDatum(op_name(cdc::Op::kSnapshot)));
    cdc::set_value(previewed.values, cdc::kLsn, LSNGetDatum(GetXLogInsertRecPtr()));
    cdc::set_value(previewed.values, cdc::kCommitTs,
                   TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
}

}  // namespace

}  // namespace pgmqtt::cdc

PGMQTT_FUNCTION(pgmqtt_preview_mapping) {
    using namespace pgmqtt;
    if (PG_ARGISNULL(0)) ereport(ERROR, (errmsg("name must not be NULL")));
    const char* predicate = PG_ARGISNULL(1) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(1));
    long limit = PG_ARGISNULL(2) ? PG_INT32_MAX : PG_GETARG_INT32(2);
    if (limit < 0) {
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("limit must not be negative")));
    }
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    SPI_connect();
    cdc::Previewed previewed = {};
    cdc::read_mapping(text_to_cstring(PG_GETARG_TEXT_PP(0)), previewed);
    cdc::prepare(previewed);
    Portal rows = cdc::open_rows(previewed, predicate);
    cdc::preview_rows(previewed, rows, limit, result);
    SPI_cursor_close(rows);
    previewed.expressions.end();
    SPI_finish();
    return Datum{0};
}
