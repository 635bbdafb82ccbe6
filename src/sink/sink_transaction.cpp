#include "sink/sink_transaction.h"

extern "C" {
#include <commands/trigger.h>
#include <nodes/parsenodes.h>
#include <utils/guc.h>
}

namespace pgmqtt::sink {
namespace {

constexpr const char* kLockTimeout = "200ms";

}  // namespace

void limit_lock_waits() {
    set_config_option("lock_timeout", kLockTimeout, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                      true, 0, false);
}

void check_constraints_at_once() {
    ConstraintsSetStmt* all_immediate = makeNode(ConstraintsSetStmt);
    all_immediate->constraints = NIL;
    all_immediate->deferred = false;
    AfterTriggerSetState(all_immediate);
}

}  // namespace pgmqtt::sink
