#include "pg/follow.h"

extern "C" {
#include <access/xact.h>
#include <storage/latch.h>
#include <utils/resowner.h>
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

// What the current transaction has asked for, until it commits and from then on.
struct Wish {
    unsigned followed = 0;
    void (*then)() = nullptr;
};
Wish at_commit_wish;
Wish committed_wish;

// The counts to which the workers have to catch up.
struct Target {
    unsigned followed;
    uint64_t configuration;
    uint64_t commands;

    bool has(unsigned what) const { return (followed & what) != 0; }
};

bool in_force(const Shared& memory, const Target& target) {
    // With the extension, all that was to be followed is gone.
    if (memory.without_extension >= target.configuration) return true;
    uint64_t configuration = target.configuration;
    if (target.has(kFollowMappings) && memory.cdc_configuration < configuration) return false;
    if (target.has(kFollowSinks) && memory.sink_configuration < configuration) return false;
    if (target.has(kFollowSinks | kFollowRules) && memory.broker_configuration < configuration)
        return false;
    return !target.has(kFollowCommands) || memory.commands_done >= target.commands;
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
void shake(Shared& memory, const Target& target) {
    if (target.has(kFollowMappings) && memory.cdc_configuration < target.configuration)
        interrupt_evaluation(memory);
    if (target.has(kFollowSinks) && memory.sink_configuration < target.configuration)
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
    if (is_worker_process(*memory)) return;
    // They count this commit, which has been announced: see events.cpp.
    Target target{followed, memory->configuration, memory->commands};
    TimestampTz start = GetCurrentTimestamp();
    TimestampTz shaken = start;
    bool told = false;
    while (!in_force(*memory, target) && !interrupted()) {
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
            shake(*memory, target);
            shaken = now;
        }
        WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kPollMs,
                  PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
    }
}

void at_transaction_event(XactEvent event, void*) {
    if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
        return;
    if (event == XACT_EVENT_COMMIT) committed_wish = at_commit_wish;
    at_commit_wish = {};
}

// The first moment at which nothing of the transaction is in a worker's way: neither a lock on what
// was changed (TRUNCATE, LOCK, ALTER) nor one on a table that is mapped (it may be new).
void at_resource_release(ResourceReleasePhase phase, bool, bool is_top_level, void*) {
    if (committed_wish.followed == 0 || !is_top_level) return;
    if (phase != RESOURCE_RELEASE_AFTER_LOCKS) return;
    Wish wish = committed_wish;
    committed_wish = {};
    wait_for_workers(wish.followed);
    if (wish.then != nullptr) wish.then();
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
    if (!registered) {
        RegisterXactCallback(at_transaction_event, nullptr);
        RegisterResourceReleaseCallback(at_resource_release, nullptr);
    }
    registered = true;
    if ((followed & ~kFollowCommands) != 0) at_commit(Event::kConfiguration);
    if ((followed & kFollowCommands) != 0) at_commit(Event::kCommand);
    at_commit_wish.followed |= followed;
    if (then != nullptr) at_commit_wish.then = then;
}

}  // namespace pgmqtt::pg
