// What people look at: counters from shared memory, retained messages, topic matching.
#include "pg/backend.h"

extern "C" {
#include <access/htup_details.h>
#include <funcapi.h>
#include <utils/builtins.h>
#include <utils/jsonb.h>
#include <utils/timestamp.h>
}

#include <string>
#include <vector>

#include "base/version.h"
#include "broker/counters.h"
#include "mqtt/codec.h"
#include "mqtt/topic.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/properties.h"
#include "pg/shared.h"

namespace pgmqtt {
namespace {

constexpr int kCounterCount = sizeof(broker::Counters) / sizeof(uint64_t);
constexpr int kLeadingColumns = 3;  // version, started_at, listening

Datum stat_broker(FunctionCallInfo fcinfo) {
    pg::require_preload();
    TupleDesc desc;
    if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "return type must be a row type");
    if (desc->natts != kLeadingColumns + kCounterCount)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the library and the extension's SQL are of different versions"),
                        errhint("Run ALTER EXTENSION pgmqtt UPDATE, or restart the server.")));
    Datum values[kLeadingColumns + kCounterCount];
    bool nulls[kLeadingColumns + kCounterCount] = {};
    pg::Shared* shared = pg::shared();
    int64_t started_at = shared->broker_started_at.load();
    values[0] = CStringGetTextDatum(base::kVersion);
    values[1] = TimestampTzGetDatum(started_at);
    nulls[1] = started_at == 0;
    values[2] = BoolGetDatum(shared->broker_listening.load());
    for (int i = 0; i < kCounterCount; ++i)
        values[kLeadingColumns + i] =
            Int64GetDatum(static_cast<int64>(shared->broker_counters[i].load()));
    return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

// NULL when the message has no properties.
Datum message_properties(FunctionCallInfo fcinfo) {
    base::ByteView encoded;
    pg::value_or_throw(pg::guard([&] { encoded = pg::varlena_view(PG_GETARG_DATUM(0)); }));
    if (encoded.empty()) PG_RETURN_NULL();
    mqtt::Properties properties;
    if (!mqtt::decode_message_properties(encoded, properties))
        throw pg::Raised(pg::make_error(ERRCODE_DATA_CORRUPTED, "malformed message properties"));
    Datum jsonb = 0;
    pg::value_or_throw(pg::guard([&] { jsonb = pg::jsonb_from_properties(properties); }));
    return jsonb;
}

// The rule of section 4.7, `$share/` prefix included. An invalid filter or topic matches nothing:
// the function is for WHERE clauses over data.
Datum topic_matches(FunctionCallInfo fcinfo) {
    base::ByteView filter;
    base::ByteView topic;
    pg::value_or_throw(pg::guard([&] {
        filter = pg::utf8_view(PG_GETARG_DATUM(0));
        topic = pg::utf8_view(PG_GETARG_DATUM(1));
    }));
    if (mqtt::is_shared_filter(filter)) {
        auto shared = mqtt::parse_shared_filter(filter);
        if (!shared) PG_RETURN_BOOL(false);
        filter = shared->filter;
    }
    PG_RETURN_BOOL(mqtt::is_valid_topic_filter(filter) && mqtt::is_valid_topic_name(topic) &&
                   mqtt::topic_matches(filter, topic));
}

}  // namespace
}  // namespace pgmqtt

PGMQTT_FUNCTION(pgmqtt_stat_broker) {
    return pgmqtt::stat_broker(fcinfo);
}

PGMQTT_FUNCTION(pgmqtt_message_properties) {
    return pgmqtt::message_properties(fcinfo);
}

PGMQTT_FUNCTION(pgmqtt_topic_matches) {
    return pgmqtt::topic_matches(fcinfo);
}
