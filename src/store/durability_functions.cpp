// pgmqtt.set_durability(). It runs as the owner of the extension (SECURITY DEFINER): who may call
// it holds no right on the table.
#include "pg/backend.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
}

#include <string>

#include "mqtt/topic.h"
#include "pg/datum.h"
#include "pg/guard.h"

namespace pgmqtt::store {
namespace {

[[noreturn]] void refuse(int sqlstate, std::string message, std::string hint = {}) {
    throw pg::Raised(pg::make_error(sqlstate, std::move(message), {}, std::move(hint)));
}

std::string utf8_argument(FunctionCallInfo fcinfo, int argument) {
    base::ByteView text;
    pg::value_or_throw(pg::guard([&] { text = pg::utf8_view(PG_GETARG_DATUM(argument)); }));
    return std::string(text);
}

void check(const std::string& filter, const std::string& durability) {
    if (mqtt::is_shared_filter(filter))
        refuse(ERRCODE_INVALID_PARAMETER_VALUE,
               "a shared subscription has no durability of its own: \"" + filter + "\"",
               "Give the filter without $share and the name of the group.");
    if (!mqtt::is_valid_topic_filter(filter))
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, "invalid topic filter: \"" + filter + "\"",
               "Wildcards + and # fill a whole level, and # is the last one.");
    if (durability != "durable" && durability != "async" && durability != "unlogged")
        refuse(ERRCODE_INVALID_PARAMETER_VALUE,
               "durability must be 'durable', 'async' or 'unlogged', not '" + durability + "'",
               "NULL removes the rule.");
}

uint64 execute(const char* sql, int count, base::ByteView filter, base::ByteView durability) {
    uint64 rows = 0;
    pg::value_or_throw(pg::guard([&] {
        Oid types[] = {TEXTOID, TEXTOID};
        Datum values[] = {pg::utf8_text_datum(filter), pg::utf8_text_datum(durability)};
        SPI_connect();
        int result = SPI_execute_with_args(sql, count, types, values, nullptr, false, 0);
        if (result < 0)
            elog(ERROR, "could not write pgmqtt.durability_rule: %s",
                 SPI_result_code_string(result));
        rows = SPI_processed;
        SPI_finish();
    }));
    return rows;
}

}  // namespace
}  // namespace pgmqtt::store

PGMQTT_FUNCTION(pgmqtt_set_durability) {
    using namespace pgmqtt;
    using namespace pgmqtt::store;
    if (PG_ARGISNULL(0)) refuse(ERRCODE_NULL_VALUE_NOT_ALLOWED, "filter must not be null");
    std::string filter = utf8_argument(fcinfo, 0);
    if (PG_ARGISNULL(1)) {
        if (execute("DELETE FROM pgmqtt.durability_rule WHERE filter = $1", 1, filter, {}) == 0)
            refuse(ERRCODE_UNDEFINED_OBJECT,
                   "topic filter \"" + filter + "\" has no durability of its own");
        PG_RETURN_VOID();
    }
    std::string durability = utf8_argument(fcinfo, 1);
    check(filter, durability);
    execute(
        "INSERT INTO pgmqtt.durability_rule VALUES ($1, $2) "
        "ON CONFLICT (filter) DO UPDATE SET durability = excluded.durability",
        2, filter, durability);
    PG_RETURN_VOID();
}
