#include "sink/sink_transaction.h"

extern "C" {
#include <commands/trigger.h>
#include <nodes/parsenodes.h>
#include <utils/guc.h>
}

namespace pgmqtt::sink {

void limit_lock_waits(std::chrono::milliseconds longest) {
    char timeout[16];
    snprintf(timeout, sizeof(timeout), "%dms", static_cast<int>(longest.count()));
    set_config_option("lock_timeout", timeout, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true,
                      0, false);
}

void check_constraints_at_once() {
    ConstraintsSetStmt* all_immediate = makeNode(ConstraintsSetStmt);
    all_immediate->constraints = NIL;
    all_immediate->deferred = false;
    AfterTriggerSetState(all_immediate);
}

}  // namespace pgmqtt::sink
