#include "cdc/follow.h"

#include "pg/backend.h"

extern "C" {
#include <access/xact.h>
#include <utils/timestamp.h>
}

#include "cdc/status.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

namespace {

constexpr long kPollMs = 2;
constexpr int kNoticeAfterMs = 1000;
constexpr int kGiveUpAfterMs = 10000;

bool waits = false;

// A slot is ready when every transaction that wrote before it has ended.
void tell(int level, const char* message) {
    int pid = pg::shared()->cdc_waits_for_pid;
    if (pid != 0) {
        ereport(level,
                (errmsg("%s", message),
                 errdetail("The replication slot can begin when the transaction of the process "
                           "with pid %d has ended.",
                           pid)));
    } else {
        ereport(level,
                (errmsg("%s", message), errdetail("The process \"pgmqtt cdc\" has not got to it."),
                 errhint("See pgmqtt.mappings.status and the server log.")));
    }
}

// After the commit nothing may raise, and interrupts are held off: as when a commit waits for a
// synchronous standby, a cancel ends the waiting, not the transaction.
bool interrupted() {
    if (!ProcDiePending && !QueryCancelPending) return false;
    QueryCancelPending = false;
    tell(WARNING, "the change of mappings is committed, but not in force yet");
    return true;
}

void wait_for_worker() {
    pg::Shared* memory = pg::shared();
    // Our own count, whatever the order of the callbacks of this commit.
    uint64_t target = ++memory->configuration;
    pg::wake(pg::Worker::kCdc);
    TimestampTz start = GetCurrentTimestamp();
    bool told = false;
    while (memory->cdc_configuration < target && !interrupted()) {
        TimestampTz now = GetCurrentTimestamp();
        if (TimestampDifferenceExceeds(start, now, kGiveUpAfterMs)) {
            tell(WARNING, "the change of mappings is committed, but not in force yet");
            return;
        }
        if (!told && TimestampDifferenceExceeds(start, now, kNoticeAfterMs)) {
            tell(NOTICE, "waiting until the change of mappings is in force");
            told = true;
        }
        WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kPollMs,
                  PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
    }
    StatusCopy stream;
    if (memory->cdc_state == static_cast<int>(pg::CdcState::kDisabled) &&
        read_status(pg::MappingStatus::kStream, stream)) {
        ereport(WARNING, (errmsg("nothing is published from tables: mappings are disabled"),
                          errdetail("%s", stream.message)));
    }
}

void at_transaction_event(XactEvent event, void*) {
    if (!waits) return;
    switch (event) {
        case XACT_EVENT_COMMIT:
            waits = false;
            wait_for_worker();
            break;
        case XACT_EVENT_ABORT:
        case XACT_EVENT_PREPARE:
            waits = false;
            break;
        default:
            break;
    }
}

}  // namespace

void follow_at_commit() {
    static bool registered = false;
    if (!registered) RegisterXactCallback(at_transaction_event, nullptr);
    registered = true;
    waits = true;
}

}  // namespace pgmqtt::cdc
