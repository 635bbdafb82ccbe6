// pgmqtt.disconnect() and pgmqtt.delete_session(): rows of pgmqtt.command, which the store worker
// hands to the broker after the commit, which returns when the broker has carried them out.
#include "pg/backend.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
}

#include "broker/batch.h"
#include "pg/datum.h"
#include "pg/follow.h"
#include "pg/guard.h"
#include "pg/shared.h"
#include "pg/table_owner.h"

namespace pgmqtt {
namespace {

using broker::CommandAction;

constexpr int kMaxClientIdBytes = 65535;

// Within a guard; may raise.
void give_command(CommandAction action, Datum client_id, int reason) {
    pg::require_preload();
    PreventCommandIfReadOnly("a command to the pgmqtt broker");
    PreventCommandIfParallelMode("a command to the pgmqtt broker");
    base::ByteView utf8 = pg::utf8_view(client_id);
    if (utf8.empty() || utf8.size() > kMaxClientIdBytes)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("client_id must have 1 to %d bytes", kMaxClientIdBytes)));
    pg::ActAs saved = pg::act_as_table_owner("command");
    if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "could not connect to SPI");
    Oid types[] = {INT2OID, BYTEAOID, INT2OID};
    Datum values[] = {Int16GetDatum(static_cast<int16>(action)), pg::bytea_datum(utf8),
                      Int16GetDatum(static_cast<int16>(reason))};
    int result = SPI_execute_with_args(
        "INSERT INTO pgmqtt.command (action, client_id, reason) VALUES ($1, $2, $3)",
        lengthof(types), types, values, nullptr, false, 0);
    if (result != SPI_OK_INSERT)
        elog(ERROR, "could not insert: %s", SPI_result_code_string(result));
    SPI_finish();
    pg::act_as_before(saved);
    pg::follow_at_commit(pg::kFollowCommands);
}

// Section 3.14.2.1: what a server may say in a DISCONNECT.
void check_reason(int reason) {
    if (reason >= 0x80 && reason <= 0xA2) return;
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("reason %d is not a reason to disconnect", reason),
                    errhint("MQTT 5.0 has 128 to 162; 152 is an administrative action.")));
}

}  // namespace
}  // namespace pgmqtt

PGMQTT_FUNCTION(pgmqtt_disconnect) {
    pgmqtt::pg::value_or_throw(pgmqtt::pg::guard([fcinfo] {
        pgmqtt::check_reason(PG_GETARG_INT32(1));
        pgmqtt::give_command(pgmqtt::CommandAction::kDisconnect, PG_GETARG_DATUM(0),
                             PG_GETARG_INT32(1));
    }));
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_delete_session) {
    pgmqtt::pg::value_or_throw(pgmqtt::pg::guard([fcinfo] {
        pgmqtt::give_command(pgmqtt::CommandAction::kDeleteSession, PG_GETARG_DATUM(0), 0);
    }));
    PG_RETURN_VOID();
}
