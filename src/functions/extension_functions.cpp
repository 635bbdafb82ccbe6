// What the extension's script and its triggers call.
#include "pg/backend.h"

extern "C" {
#include <commands/dbcommands.h>
#include <commands/trigger.h>
}

#include <cstring>

#include "pg/guard.h"
#include "pg/settings.h"
#include "pg/shared.h"

namespace pgmqtt::functions {
namespace {

// No destructor is alive here: ereport may jump.
void check_database() {
    const char* here = get_database_name(MyDatabaseId);
    if (here != nullptr && std::strcmp(here, pg::settings.database) == 0) return;
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("extension \"pgmqtt\" can only be created in database \"%s\"",
                    pg::settings.database),
             errdetail("The broker serves one database, which pgmqtt.database names. It is \"%s\"; "
                       "this is database \"%s\".",
                       pg::settings.database, here != nullptr ? here : ""),
             errhint("Connect to database \"%s\", or set pgmqtt.database to \"%s\" and restart the "
                     "server.",
                     pg::settings.database, here != nullptr ? here : "")));
}

}  // namespace
}  // namespace pgmqtt::functions

PGMQTT_FUNCTION(pgmqtt_extension_created) {
    if (pgmqtt::pg::shared() == nullptr) {
        ereport(WARNING,
                (errmsg("pgmqtt is not preloaded, so its broker does not run"),
                 errhint("Add pgmqtt to shared_preload_libraries and restart the server.")));
        PG_RETURN_VOID();
    }
    pgmqtt::functions::check_database();
    pgmqtt::pg::at_commit(pgmqtt::pg::Event::kConfiguration);
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_configuration_changed) {
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                        errmsg("pgmqtt.configuration_changed() is a trigger function")));
    pgmqtt::pg::at_commit(pgmqtt::pg::Event::kConfiguration);
    return PointerGetDatum(nullptr);
}
