#include "sink/sink_transaction.h"

extern "C" {
#include <commands/trigger.h>
#include <nodes/parsenodes.h>
#include <storage/proc.h>
#include <utils/guc.h>
#include <utils/timeout.h>
}

namespace pgmqtt::sink {
namespace {

constexpr const char* kLockTimeout = "200ms";

}  // namespace

void begin_sink_work() {
    set_config_option("lock_timeout", kLockTimeout, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                      true, 0, false);
    ConstraintsSetStmt* all_immediate = makeNode(ConstraintsSetStmt);
    all_immediate->constraints = NIL;
    all_immediate->deferred = false;
    AfterTriggerSetState(all_immediate);
}

StatementTimer::StatementTimer() {
    if (StatementTimeout > 0) enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
}

StatementTimer::~StatementTimer() {
    if (get_timeout_active(STATEMENT_TIMEOUT)) disable_timeout(STATEMENT_TIMEOUT, false);
}

}  // namespace pgmqtt::sink
