#include "store/blockers.h"

#include "pg/backend.h"

extern "C" {
#include <executor/spi.h>
}

#include "pg/datum.h"
#include "pg/transaction.h"

namespace pgmqtt::store {
namespace {

// The locks that conflict with RowExclusiveLock.
constexpr const char* kHolders =
    "SELECT string_agg(h.line, ' ') FROM (SELECT format('%s holds %s on pgmqtt.%I.', "
    "coalesce('Process ' || l.pid, 'A prepared transaction'), l.mode, "
    "min(c.relname)) || CASE WHEN count(*) > 1 THEN format(' (And %s more tables.)', count(*) - 1) "
    "ELSE '' END AS line FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
    "WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND c.relnamespace = 'pgmqtt'::regnamespace AND c.relkind = 'r' AND l.mode IN ('ShareLock', "
    "'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') "
    "GROUP BY l.pid, l.mode ORDER BY l.pid LIMIT 5) h";

}  // namespace

std::string lock_holders() noexcept {
    std::string holders;
    try {
        (void)pg::transaction({.read_only = true}, [&holders] {
            SPI_execute(kHolders, true, 0);
            if (SPI_processed == 0) return;
            bool null = false;
            Datum text = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null);
            if (!null) holders = pg::varlena_view(text);
        });
    } catch (...) {
        holders.clear();
    }
    return holders;
}

}  // namespace pgmqtt::store
