// pgmqtt.clear_retained(): the broker clears, memory and table alike, and says how many.
#include "pg/backend.h"

#include "base/bytes.h"
#include "mqtt/topic.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/inquiry.h"
#include "pg/shared.h"

namespace pgmqtt {
namespace {

// The last record is the final count.
void take_count(void* context, base::ByteView record) {
    base::ByteReader reader(record);
    *static_cast<uint64_t*>(context) = reader.u64();
}

// Within a guard; may raise.
uint64_t clear_retained(Datum filter) {
    pg::require_preload();
    pg::require_served_database();
    PreventCommandIfReadOnly("pgmqtt.clear_retained()");
    PreventCommandIfParallelMode("pgmqtt.clear_retained()");
    base::ByteView utf8 = pg::utf8_view(filter);
    if (mqtt::is_shared_filter(utf8) || !mqtt::is_valid_topic_filter(utf8)) {
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("not a valid MQTT topic filter"),
                 errhint("+ stands for one level, # at the end for all that follow: "
                         "'orders/+', 'orders/#', '#'.")));
    }
    uint64_t count = 0;
    pg::ask_broker(utf8, take_count, &count);
    return count;
}

}  // namespace
}  // namespace pgmqtt

PGMQTT_FUNCTION(pgmqtt_clear_retained) {
    uint64_t count = 0;
    pgmqtt::pg::value_or_throw(pgmqtt::pg::guard(
        [fcinfo, &count] { count = pgmqtt::clear_retained(PG_GETARG_DATUM(0)); }));
    PG_RETURN_INT64(static_cast<int64>(count));
}
