#include "cdc/mapping_table.h"

extern "C" {
#include <catalog/pg_type.h>
#include <executor/spi.h>
#include <utils/builtins.h>
}

#include "cdc/slot.h"
#include "pg/table_owner.h"

namespace pgmqtt::cdc {

namespace {

uint64 run(const char* sql, int count, Oid* types, Datum* values, const char* nulls) {
    pg::ActAs saved = pg::act_as_table_owner("mapping");
    int result = SPI_execute_with_args(sql, count, types, values, nulls, false, 0);
    if (result < 0) elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(result));
    pg::act_as_before(saved);
    return SPI_processed;
}

}  // namespace

void insert_mapping(NewMapping& mapping) {
    Oid types[] = {TEXTOID, REGCLASSOID, TEXTOID, TEXTOID,    TEXTOID, TEXTARRAYOID, INT4OID,
                   BOOLOID, TEXTOID,     TEXTOID, REGROLEOID, TEXTOID, TEXTARRAYOID, BOOLOID};
    mapping.values[kNewHadSlot] = BoolGetDatum(slot_exists());
    mapping.nulls[kNewHadSlot] = ' ';
    run("INSERT INTO pgmqtt.mapping (name, source, topic, payload, filter, operations, qos, retain,"
        " properties, on_error, owner, search_path, calls, had_slot)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        14, types, mapping.values, mapping.nulls);
}

bool mapping_exists(const char* name) {
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    return run("SELECT FROM pgmqtt.mapping WHERE name = $1", 1, types, values, nullptr) > 0;
}

void close_gap(const char* name) {
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    run("DELETE FROM pgmqtt.gap USING pgmqtt.mapping m WHERE m.id = mapping AND m.name = $1", 1,
        types, values, nullptr);
}

bool delete_mapping(const char* name) {
    close_gap(name);
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    return run("DELETE FROM pgmqtt.mapping WHERE name = $1", 1, types, values, nullptr) > 0;
}

bool enable_mapping(const char* name, bool enabled) {
    if (!enabled) close_gap(name);
    Oid types[] = {TEXTOID, BOOLOID, BOOLOID};
    Datum values[] = {CStringGetTextDatum(name), BoolGetDatum(enabled),
                      BoolGetDatum(slot_exists())};
    return run("UPDATE pgmqtt.mapping SET enabled = $2,"
               " enabled_at = CASE WHEN enabled THEN enabled_at ELSE clock_timestamp() END,"
               " had_slot = CASE WHEN enabled THEN had_slot ELSE $3 END WHERE name = $1",
               3, types, values, nullptr) > 0;
}

}  // namespace pgmqtt::cdc
