// add_sink(), alter_sink(), drop_sink(), redrive() and what pgmqtt.sinks shows of the worker.
#include "pg/backend.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
#include <funcapi.h>
#include <utils/builtins.h>
#include <utils/guc.h>
}

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "broker/sink_filter.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/shared.h"
#include "pg/sink_slot.h"
#include "pg/table_owner.h"
#include "sink/definition.h"
#include "sink/msg_relation.h"
#include "sink/redrive.h"
#include "sink/sink_statement.h"

namespace pgmqtt::sink {
namespace {

[[noreturn]] void refuse(int sqlstate, std::string message, std::string detail = {},
                         std::string hint = {}) {
    throw pg::Raised(
        pg::make_error(sqlstate, std::move(message), std::move(detail), std::move(hint)));
}

[[noreturn]] void refuse_missing(const std::string& name) {
    refuse(ERRCODE_UNDEFINED_OBJECT, "sink \"" + name + "\" does not exist");
}

void require_argument(FunctionCallInfo fcinfo, int argument, const char* name) {
    if (PG_ARGISNULL(argument))
        refuse(ERRCODE_NULL_VALUE_NOT_ALLOWED, std::string(name) + " must not be null");
}

// In the server's encoding.
std::string text_argument(FunctionCallInfo fcinfo, int argument, const char* name) {
    require_argument(fcinfo, argument, name);
    base::ByteView text;
    pg::value_or_throw(pg::guard([&] { text = pg::varlena_view(PG_GETARG_DATUM(argument)); }));
    return std::string(text);
}

// --- add_sink

// The caller's search_path, for the statement. Temporary tables come last: no worker sees them.
std::string search_path_of_caller() {
    const char* path = nullptr;
    pg::value_or_throw(
        pg::guard([&] { path = GetConfigOptionByName("search_path", nullptr, false); }));
    std::string text = path;
    if (text.find("pg_temp") == std::string::npos) text += text.empty() ? "pg_temp" : ", pg_temp";
    return text;
}

std::string filter_argument(FunctionCallInfo fcinfo) {
    require_argument(fcinfo, 1, "filter");
    base::ByteView filter;
    pg::value_or_throw(pg::guard([&] { filter = pg::utf8_view(PG_GETARG_DATUM(1)); }));
    return std::string(filter);
}

Definition definition_of_arguments(FunctionCallInfo fcinfo) {
    Definition definition;
    definition.name = text_argument(fcinfo, 0, "name");
    definition.filter = filter_argument(fcinfo);
    definition.statement = text_argument(fcinfo, 2, "statement");
    require_argument(fcinfo, 3, "qos");
    int qos = PG_GETARG_INT32(3);
    std::string on_error = text_argument(fcinfo, 4, "on_error");
    if (definition.name.empty())
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, "the name of a sink must not be empty");
    if (qos < 0 || qos > 2)
        refuse(ERRCODE_INVALID_PARAMETER_VALUE,
               "qos must be 0, 1 or 2, not " + std::to_string(qos));
    if (on_error != "dead_letter" && on_error != "retry")
        refuse(ERRCODE_INVALID_PARAMETER_VALUE,
               "on_error must be 'dead_letter' or 'retry', not '" + on_error + "'");
    definition.qos = static_cast<mqtt::Qos>(qos);
    definition.retry = on_error == "retry";
    definition.owner = GetUserId();
    definition.search_path = search_path_of_caller();
    return definition;
}

// A wrong name or type is often a wrong idea of msg.
bool columns_may_help(int sqlstate) {
    switch (sqlstate) {
        case ERRCODE_UNDEFINED_COLUMN:
        case ERRCODE_AMBIGUOUS_COLUMN:
        case ERRCODE_UNDEFINED_FUNCTION:
        case ERRCODE_DATATYPE_MISMATCH:
            return true;
        default:
            return false;
    }
}

void check(const Definition& definition) {
    auto filter = broker::parse_sink_filter(definition.filter);
    if (!filter)
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, filter.error().message, {}, filter.error().hint);
    std::string conflict = MsgColumns::conflict(filter->captures);
    if (!conflict.empty()) refuse(ERRCODE_DUPLICATE_COLUMN, conflict);
    MsgColumns columns(std::move(filter->captures));
    SinkStatement statement(definition, columns);
    pg::Status status = pg::guard([&] { statement.check(columns.describe()); });
    if (status) return;
    pg::Error error = std::move(status.error());
    if (columns_may_help(error.sqlstate)) {
        if (!error.hint.empty()) error.hint += " ";
        error.hint += "The columns of msg are " + columns.list() + ".";
    }
    throw pg::Raised(std::move(error));
}

// One statement on pgmqtt.sink as its owner. Returns how many rows it wrote.
uint64 write_table(const char* sql, int count, Oid* types, Datum* values) {
    SPI_connect();
    pg::ActAs saved = pg::act_as_table_owner("sink");
    int result = SPI_execute_with_args(sql, count, types, values, nullptr, false, 0);
    if (result < 0) elog(ERROR, "could not write pgmqtt.sink: %s", SPI_result_code_string(result));
    uint64 rows = SPI_processed;
    pg::act_as_before(saved);
    SPI_finish();
    return rows;
}

void insert(const Definition& definition) {
    uint64 rows = 0;
    pg::value_or_throw(pg::guard([&] {
        Oid types[] = {TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, REGROLEOID, TEXTOID};
        Datum values[] = {pg::text_datum(definition.name),
                          pg::utf8_text_datum(definition.filter),
                          pg::text_datum(definition.statement),
                          Int32GetDatum(static_cast<int32>(definition.qos)),
                          pg::text_datum(definition.retry ? "retry" : "dead_letter"),
                          ObjectIdGetDatum(definition.owner),
                          pg::text_datum(definition.search_path)};
        rows = write_table(
            "INSERT INTO pgmqtt.sink (name, filter, statement, qos, on_error, owner, search_path) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO NOTHING",
            7, types, values);
    }));
    if (rows == 0)
        refuse(ERRCODE_DUPLICATE_OBJECT, "sink \"" + definition.name + "\" already exists");
}

// --- drop_sink, alter_sink

void write_row(const std::string& name, const char* sql) {
    uint64 rows = 0;
    pg::value_or_throw(pg::guard([&] {
        Oid type = TEXTOID;
        Datum value = pg::text_datum(name);
        rows = write_table(sql, 1, &type, &value);
    }));
    if (rows == 0) refuse_missing(name);
}

// --- redrive

std::vector<Definition> definitions() {
    std::vector<Definition> all;
    pg::value_or_throw(pg::guard([&] {
        SPI_connect();
        pg::ActAs saved = pg::act_as_table_owner("sink");
        read_definitions(all);
        pg::act_as_before(saved);
        SPI_finish();
    }));
    return all;
}

int64_t redrive(const std::optional<std::string>& name) {
    Redrive redrive;
    int64_t stored = 0;
    bool found = false;
    for (const Definition& definition : definitions()) {
        if (name && definition.name != *name) continue;
        found = true;
        stored += redrive.run(definition);
    }
    if (name && !found) refuse_missing(*name);
    return stored;
}

// --- sink_status

const char* state_name(int state) {
    switch (static_cast<pg::SinkState>(state)) {
        case pg::SinkState::kWaiting:
            return "waiting";
        case pg::SinkState::kError:
            return "error";
        case pg::SinkState::kActive:
            break;
    }
    return "active";
}

// 0 when `since` is.
double seconds_since(int64_t since) {
    if (since == 0) return 0;
    int64_t now = base::read_clocks().wall.time_since_epoch().count();
    return std::max(0.0, static_cast<double>(now - since) / 1e6);
}

void put_status(ReturnSetInfo* result, const pg::SinkSlot& slot, const char* text) {
    pg::BatchTimes::Percentiles times = slot.times.percentiles();
    auto counter = [](const std::atomic<uint64_t>& value) {
        return Int64GetDatum(static_cast<int64>(value.load()));
    };
    Datum values[] = {Int32GetDatum(static_cast<int32>(slot.sink_id.load())),
                      CStringGetTextDatum(state_name(slot.state)),
                      CStringGetTextDatum(text),
                      counter(slot.messages),
                      counter(slot.dead_letters),
                      counter(slot.retries),
                      counter(slot.pending),
                      counter(slot.batches),
                      Float8GetDatum(seconds_since(slot.waits_since)),
                      Float8GetDatum(times.p50 / 1000.0),
                      Float8GetDatum(times.p99 / 1000.0)};
    bool no_time = times.p99 == 0;
    bool nulls[] = {false, false, text[0] == '\0', false,   false,  false,
                    false, false, false,           no_time, no_time};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

}  // namespace
}  // namespace pgmqtt::sink

PGMQTT_FUNCTION(pgmqtt_add_sink) {
    using namespace pgmqtt;
    using namespace pgmqtt::sink;
    pg::value_or_throw(pg::guard([] { pg::require_preload(); }));
    Definition definition = definition_of_arguments(fcinfo);
    check(definition);
    insert(definition);
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_drop_sink) {
    using namespace pgmqtt;
    using namespace pgmqtt::sink;
    write_row(text_argument(fcinfo, 0, "name"), "DELETE FROM pgmqtt.sink WHERE name = $1");
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_alter_sink) {
    using namespace pgmqtt;
    using namespace pgmqtt::sink;
    require_argument(fcinfo, 1, "enabled");
    const char* sql = PG_GETARG_BOOL(1) ? "UPDATE pgmqtt.sink SET enabled = true WHERE name = $1"
                                        : "UPDATE pgmqtt.sink SET enabled = false WHERE name = $1";
    write_row(text_argument(fcinfo, 0, "name"), sql);
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_redrive) {
    using namespace pgmqtt;
    using namespace pgmqtt::sink;
    std::optional<std::string> name;
    if (!PG_ARGISNULL(0)) name = text_argument(fcinfo, 0, "sink");
    return Int64GetDatum(redrive(name));
}

PGMQTT_FUNCTION(pgmqtt_sink_status) {
    using namespace pgmqtt;
    using namespace pgmqtt::sink;
    ReturnSetInfo* result = nullptr;
    pg::value_or_throw(pg::guard([&] {
        InitMaterializedSRF(fcinfo, 0);
        result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    }));
    pg::Shared* shared = pg::shared();
    if (shared == nullptr || shared->workers[static_cast<int>(pg::Worker::kSink)].pid == 0)
        return Datum{0};
    for (const pg::SinkSlot& slot : shared->sinks) {
        if (slot.sink_id == 0) continue;
        std::string message = slot.text();
        const char* line = message.c_str();
        pg::value_or_throw(pg::guard([&] { put_status(result, slot, line); }));
    }
    return Datum{0};
}
