#include "pg/datum.h"

extern "C" {
#include <catalog/pg_type.h>
#include <mb/pg_wchar.h>
#include <utils/array.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
#include <utils/timestamp.h>
}

#include <cstring>

namespace pgmqtt::pg {
namespace {

constexpr int64 kPostgresEpoch =  // in microseconds after the Unix epoch
    int64{POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE} * USECS_PER_DAY;

// The size as the server's functions want it; larger than any value can be is an ERROR.
int checked_size(base::ByteView bytes) {
    if (!AllocSizeIsValid(bytes.size() + VARHDRSZ))
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("value of %zu bytes is too large", bytes.size())));
    return static_cast<int>(bytes.size());
}

Datum varlena_datum(base::ByteView bytes) {
    return PointerGetDatum(cstring_to_text_with_len(bytes.data(), checked_size(bytes)));
}

}  // namespace

Datum text_datum(base::ByteView text) {
    return varlena_datum(text);
}

Datum bytea_datum(base::ByteView bytes) {
    return varlena_datum(bytes);
}

Datum utf8_text_datum(base::ByteView utf8) {
    int size = checked_size(utf8);
    if (size == 0) return varlena_datum({});
    // Checks the bytes also where there is nothing to convert. Returns its argument then.
    const char* converted = pg_any_to_server(utf8.data(), size, PG_UTF8);
    if (converted == utf8.data()) return varlena_datum(utf8);
    return varlena_datum({converted, std::strlen(converted)});
}

Datum timestamptz_datum(base::WallTime time) {
    int64 since_unix = time.time_since_epoch().count();
    if (since_unix > END_TIMESTAMP - 1) return TimestampTzGetDatum(DT_NOEND);
    int64 value =
        since_unix < PG_INT64_MIN + kPostgresEpoch ? DT_NOBEGIN : since_unix - kPostgresEpoch;
    if (value < MIN_TIMESTAMP) value = DT_NOBEGIN;
    return TimestampTzGetDatum(value);
}

base::WallTime wall_time(Datum timestamptz) {
    TimestampTz value = DatumGetTimestampTz(timestamptz);
    if (TIMESTAMP_IS_NOBEGIN(value)) return base::WallTime::min();
    if (value > PG_INT64_MAX - kPostgresEpoch) return base::WallTime::max();
    return base::WallTime(std::chrono::microseconds(value + kPostgresEpoch));
}

base::ByteView varlena_view(Datum value) {
    const varlena* bytes = PG_DETOAST_DATUM_PACKED(value);
    return {VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes)};
}

base::ByteView utf8_view(Datum text) {
    base::ByteView server = varlena_view(text);
    if (server.empty()) return server;
    const char* converted =
        pg_server_to_any(server.data(), static_cast<int>(server.size()), PG_UTF8);
    if (converted == server.data()) return server;
    return {converted, std::strlen(converted)};
}

Datum array_datum(const Datum* values, int count, Oid element_type) {
    int16 size;
    bool by_value;
    char alignment;
    get_typlenbyvalalign(element_type, &size, &by_value, &alignment);
    return PointerGetDatum(construct_array(const_cast<Datum*>(values), count, element_type, size,
                                           by_value, alignment));
}

}  // namespace pgmqtt::pg
