#include "pg/follow.h"

extern "C" {
#include <access/xact.h>
#include <storage/latch.h>
#include <utils/timestamp.h>
}

#include "pg/guard.h"
#include "pg/shared.h"

namespace pgmqtt::pg {
namespace {

constexpr long kPollMs = 2;
constexpr int kNoticeAfterMs = 1000;
constexpr int kCancelAfterMs = 2000;  // and again and again
constexpr int kGiveUpAfterMs = 10000;

unsigned followed_at_commit = 0;
void (*then_at_commit)() = nullptr;

bool in_force(const Shared& memory, unsigned followed, uint64_t target) {
    if ((followed & kFollowMappings) != 0 && memory.cdc_configuration < target) return false;
    if ((followed & kFollowSinks) != 0 && memory.sink_configuration < target) return false;
    bool needs_broker = (followed & (kFollowSinks | kFollowRules)) != 0;
    return !needs_broker || memory.broker_configuration >= target;
}

// A slot is ready when every transaction that wrote before it has ended.
void tell(int level, const char* message) {
    int pid = shared()->cdc_waits_for_pid;
    if (pid == kPreparedTransaction) {
        ereport(level,
                (errmsg("%s", message),
                 errdetail("The replication slot can begin when a prepared transaction has ended."),
                 errhint("See pg_prepared_xacts.")));
    } else if (pid != 0) {
        ereport(level,
                (errmsg("%s", message),
                 errdetail("The replication slot can begin when the transaction of the process "
                           "with pid %d has ended.",
                           pid)));
    } else {
        ereport(level,
                (errmsg("%s", message), errdetail("A pgmqtt worker has not got to it."),
                 errhint("See the status in pgmqtt.mappings and pgmqtt.sinks, and the server "
                         "log.")));
    }
}

// After the commit nothing may raise, and interrupts are held off: as when a commit waits for a
// synchronous standby, a cancel ends the waiting, not the transaction.
bool interrupted() {
    if (!ProcDiePending && !QueryCancelPending) return false;
    QueryCancelPending = false;
    tell(WARNING, "the change is committed, but not in force yet");
    return true;
}

// Whoever sees that the evaluation is over sees the signals that were for it, too.
void interrupt_evaluation(Shared& memory) {
    int expected = 1;
    if (!memory.cdc_evaluation.compare_exchange_strong(expected, 2)) return;
    cancel_statement(Worker::kCdc);
    expected = 2;
    memory.cdc_evaluation.compare_exchange_strong(expected, 1);
}

// A worker that is in an endless expression or a sleeping statement hears of nothing: end that.
void shake(Shared& memory, unsigned followed, uint64_t target) {
    if ((followed & kFollowMappings) != 0 && memory.cdc_configuration < target)
        interrupt_evaluation(memory);
    if ((followed & kFollowSinks) != 0 && memory.sink_configuration < target)
        cancel_statement(Worker::kSink);
}

// A sink's statement may change sinks: its worker cannot wait for itself.
bool is_worker_process(const Shared& memory) {
    for (const WorkerSlot& slot : memory.workers)
        if (slot.pid == MyProcPid) return true;
    return false;
}

void wait_for_workers(unsigned followed) {
    Shared* memory = shared();
    // Our own count, whatever the order of the callbacks of this commit.
    uint64_t target = ++memory->configuration;
    wake_all();
    if (is_worker_process(*memory)) return;
    TimestampTz start = GetCurrentTimestamp();
    TimestampTz shaken = start;
    bool told = false;
    while (!in_force(*memory, followed, target) && !interrupted()) {
        TimestampTz now = GetCurrentTimestamp();
        if (TimestampDifferenceExceeds(start, now, kGiveUpAfterMs)) {
            tell(WARNING, "the change is committed, but not in force yet");
            return;
        }
        if (!told && TimestampDifferenceExceeds(start, now, kNoticeAfterMs)) {
            tell(NOTICE, "waiting until the change is in force");
            told = true;
        }
        if (TimestampDifferenceExceeds(shaken, now, kCancelAfterMs)) {
            shake(*memory, followed, target);
            shaken = now;
        }
        WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kPollMs,
                  PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
    }
}

void at_transaction_event(XactEvent event, void*) {
    if (followed_at_commit == 0) return;
    if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
        return;
    unsigned followed = followed_at_commit;
    void (*then)() = then_at_commit;
    followed_at_commit = 0;
    then_at_commit = nullptr;
    if (event != XACT_EVENT_COMMIT) return;
    wait_for_workers(followed);
    if (then != nullptr) then();
}

}  // namespace

Interruptible::Interruptible() {
    shared()->cdc_evaluation = 1;
}

Interruptible::~Interruptible() {
    for (int expected = 1; !shared()->cdc_evaluation.compare_exchange_weak(expected, 0);) {
        if (expected == 0) break;
        expected = 1;
    }
    // What came for the evaluation and did not meet it ends here.
    Status ignored = guard([] { CHECK_FOR_INTERRUPTS(); });
    static_cast<void>(ignored);
}

void follow_at_commit(unsigned followed, void (*then)()) {
    if (shared() == nullptr) return;
    static bool registered = false;
    if (!registered) RegisterXactCallback(at_transaction_event, nullptr);
    registered = true;
    followed_at_commit |= followed;
    if (then != nullptr) then_at_commit = then;
}

}  // namespace pgmqtt::pg
