#include "pg/extension.h"

extern "C" {
#include <commands/extension.h>
}

#include "pg/guard.h"
#include "pg/log.h"
#include "pg/shared.h"
#include "pg/transaction.h"

namespace pgmqtt::pg {
namespace {

Oid served = InvalidOid;
bool exists = false;
uint64_t seen_configuration = 0;

// May raise.
Oid find_extension() {
    return get_extension_oid("pgmqtt", true);
}

// False: nobody knows.
bool look_up(Oid& found) {
    // Read first: what changes after the look is then seen as a change.
    uint64_t configuration = shared()->configuration;
    Status status = transaction({.read_only = true}, [&found] { found = find_extension(); });
    if (!status) {
        log(WARNING, "pgmqtt could not look for its extension", status.error());
        return false;
    }
    seen_configuration = configuration;
    if (!OidIsValid(found)) shared()->without_extension = configuration;
    return true;
}

}  // namespace

bool serve_extension() {
    Oid found = InvalidOid;
    if (!look_up(found)) return false;
    served = found;
    exists = OidIsValid(found);
    return exists;
}

// A commit counts what it changed before it releases its locks: who has got one of them sees it.
bool extension_exists() {
    if (shared()->configuration.load(std::memory_order_relaxed) == seen_configuration)
        return exists;
    Oid found = InvalidOid;
    if (look_up(found)) exists = OidIsValid(found) && found == served;
    return exists;
}

void require_extension() {
    if (exists && shared()->configuration == seen_configuration) return;
    if (OidIsValid(served) && find_extension() == served) return;
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension pgmqtt was dropped")));
}

}  // namespace pgmqtt::pg
