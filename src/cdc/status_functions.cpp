// How mappings are doing: what pgmqtt.mappings shows beside their definitions.
#include "pg/backend.h"

extern "C" {
#include <access/htup_details.h>
#include <funcapi.h>
#include <utils/builtins.h>
}

#include <cstring>

#include "cdc/status.h"
#include "pg/guard.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

namespace {

struct Shown {
    const char* status;
    const char* message;
};

Shown shown_status(bool enabled, bool known, const cdc::StatusCopy& mapping) {
    if (pg::shared() == nullptr) return {"disabled: pgmqtt is not preloaded", nullptr};
    if (!enabled) return {"off", nullptr};
    cdc::StatusCopy stream = {};
    bool stream_known = cdc::read_status(pg::MappingStatus::kStream, stream);
    const char* stream_message = pstrdup(stream.message);
    auto state = static_cast<pg::CdcState>(pg::shared()->cdc_state.load());
    if (state == pg::CdcState::kDisabled)
        return {psprintf("disabled: %s", stream_message), nullptr};
    if (stream_known && std::strcmp(stream.state, "error") == 0) return {"error", stream_message};
    if (state != pg::CdcState::kStreaming) return {"starting", stream_message};
    if (!known) return {"streaming", nullptr};
    return {pstrdup(mapping.state),
            mapping.message[0] == '\0' ? nullptr : pstrdup(mapping.message)};
}

}  // namespace

}  // namespace pgmqtt::cdc

// (id int, enabled boolean, OUT status text, OUT message text, OUT published bigint, OUT errors
// bigint)
PGMQTT_FUNCTION(pgmqtt_mapping_status) {
    using namespace pgmqtt;
    TupleDesc columns;
    if (get_call_result_type(fcinfo, nullptr, &columns) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "return type must be a row type");
    }
    cdc::StatusCopy copy = {};
    bool known = pg::shared() != nullptr && cdc::read_status(PG_GETARG_INT32(0), copy);
    cdc::Shown shown = cdc::shown_status(PG_GETARG_BOOL(1), known, copy);
    bool no_message = shown.message == nullptr || *shown.message == '\0';
    Datum values[] = {
        CStringGetTextDatum(shown.status),
        no_message ? Datum{0} : CStringGetTextDatum(shown.message),
        Int64GetDatum(static_cast<int64>(copy.published)),
        Int64GetDatum(static_cast<int64>(copy.errors)),
    };
    bool nulls[] = {false, no_message, !known, !known};
    HeapTuple tuple = heap_form_tuple(BlessTupleDesc(columns), values, nulls);
    return HeapTupleGetDatum(tuple);
}
