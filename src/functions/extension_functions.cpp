// What the extension's script and its triggers call.
#include "pg/backend.h"

extern "C" {
#include <commands/trigger.h>
#include <utils/rel.h>
}

#include <cstring>

#include "pg/extension.h"
#include "pg/follow.h"
#include "pg/guard.h"
#include "pg/shared.h"

PGMQTT_FUNCTION(pgmqtt_extension_created) {
    pgmqtt::pg::require_own_script();
    if (pgmqtt::pg::shared() == nullptr) {
        ereport(WARNING,
                (errmsg("pgmqtt is not preloaded, so its broker does not run"),
                 errhint("Add pgmqtt to shared_preload_libraries and restart the server.")));
        PG_RETURN_VOID();
    }
    pgmqtt::pg::require_served_database();
    pgmqtt::pg::at_commit(pgmqtt::pg::Event::kConfiguration);
    PG_RETURN_VOID();
}

namespace {

pgmqtt::pg::Followed followed_by(const char* table) {
    if (std::strcmp(table, "sink") == 0) return pgmqtt::pg::kFollowSinks;
    if (std::strcmp(table, "durability_rule") == 0) return pgmqtt::pg::kFollowRules;
    return pgmqtt::pg::kFollowMappings;
}

}  // namespace

PGMQTT_FUNCTION(pgmqtt_configuration_changed) {
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                        errmsg("pgmqtt.configuration_changed() is a trigger function")));
    const char* table =
        RelationGetRelationName(reinterpret_cast<TriggerData*>(fcinfo->context)->tg_relation);
    pgmqtt::pg::follow_at_commit(followed_by(table));
    return PointerGetDatum(nullptr);
}
