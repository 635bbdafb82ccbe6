#include "pg/transaction.h"

extern "C" {
#include <access/xact.h>
#include <access/xlog.h>
#include <executor/spi.h>
#include <storage/latch.h>
#include <storage/lock.h>
#include <utils/backend_status.h>
#include <utils/memutils.h>
#include <utils/snapmgr.h>
}

#include "pg/wal.h"

namespace pgmqtt::pg {
namespace {

struct Run {
    const TransactionOptions* options;
    void (*fn)(void*);
    void* arg;
};

void set_local(const char* name, const char* value) {
    set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

// Inside a guard.
void run_and_commit(void* arg) {
    const Run& run = *static_cast<Run*>(arg);
    MemoryContext outer = CurrentMemoryContext;
    XLogRecPtr last_commit = XactLastCommitEnd;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    if (run.options->activity != nullptr)
        pgstat_report_activity(STATE_RUNNING, run.options->activity);
    if (run.options->wait != CommitWait::kFlush) set_local("synchronous_commit", "off");
    if (run.options->read_only) XactReadOnly = true;
    SPI_connect();
    PushActiveSnapshot(GetTransactionSnapshot());
    // Dies with the transaction; of its own, so that a dump of the contexts tells whose it is.
    MemoryContext context =
        AllocSetContextCreate(TopTransactionContext, "pgmqtt transaction", ALLOCSET_DEFAULT_SIZES);
    MemoryContextSwitchTo(context);
    run.fn(run.arg);
    SPI_finish();
    PopActiveSnapshot();
    CommitTransactionCommand();
    MemoryContextSwitchTo(outer);
    bool wrote = XactLastCommitEnd != last_commit;
    if (wrote && run.options->wait != CommitWait::kNothing) write_wal(XactLastCommitEnd);
}

// A transaction that can be neither committed nor aborted leaves the process in no state to go on.
void abort_transaction(MemoryContext outer) {
    Error error;
    bool aborted = internal::run_guarded([](void*) { AbortCurrentTransaction(); }, nullptr, error);
    if (!aborted)
        internal::run_guarded(
            [](void*) { ereport(FATAL, errmsg("pgmqtt could not abort a transaction")); }, nullptr,
            error);
    MemoryContextSwitchTo(outer);
}

// Of what a user's expression or statement can leave behind in a session, these outlive its
// transaction, and a worker's session does not end.
void release_advisory_locks() {
    Error ignored;
    internal::run_guarded([](void*) { LockReleaseSession(USER_LOCKMETHOD); }, nullptr, ignored);
}

void report_idle(const TransactionOptions& options) {
    if (options.activity != nullptr) pgstat_report_activity(STATE_IDLE, nullptr);
}

// What a subtransaction's end must put back. SPI's own stack is restored by its callbacks.
struct Savepoint {
    MemoryContext context;
    ResourceOwner owner;
};

void begin_subtransaction(const Savepoint& before) {
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(before.context);
}

void leave_subtransaction(const Savepoint& before) {
    MemoryContextSwitchTo(before.context);
    CurrentResourceOwner = before.owner;
}

void roll_back_subtransaction(const Savepoint& before) {
    RollbackAndReleaseCurrentSubTransaction();
    leave_subtransaction(before);
}

struct SubRun {
    Savepoint before;
    void (*fn)(void*);
    void* arg;
};

void run_and_release(void* arg) {
    const SubRun& run = *static_cast<SubRun*>(arg);
    begin_subtransaction(run.before);
    run.fn(run.arg);
    ReleaseCurrentSubTransaction();
    leave_subtransaction(run.before);
}

}  // namespace

ActAs act_as(Oid role, const char* search_path) {
    ActAs saved;
    GetUserIdAndSecContext(&saved.saved_role, &saved.saved_context);
    SetUserIdAndSecContext(
        role, saved.saved_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
    saved.guc_nest_level = NewGUCNestLevel();
    set_config_option("search_path", search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
                      0, false);
    return saved;
}

void act_as_before(const ActAs& saved) {
    AtEOXact_GUC(false, saved.guc_nest_level);
    SetUserIdAndSecContext(saved.saved_role, saved.saved_context);
}

namespace internal {

volatile sig_atomic_t cancelled_for_shutdown = 0;

bool run_transaction(const TransactionOptions& options, void (*fn)(void*), void* arg,
                     Error& error) {
    MemoryContext outer = CurrentMemoryContext;
    Run run{&options, fn, arg};
    std::exception_ptr thrown;
    bool committed = false;
    try {
        committed = run_guarded(run_and_commit, &run, error);
    } catch (...) {
        thrown = std::current_exception();
    }
    if (!committed) abort_transaction(outer);
    release_advisory_locks();
    report_idle(options);
    // A wait inside the transaction (for a lock, for a synchronous standby) resets the process's
    // latch, and with it whatever it was set for: look again before sleeping.
    SetLatch(MyLatch);
    if (thrown) std::rethrow_exception(thrown);
    // A cancelled wait for a synchronous standby ends in a commit that nobody else has. Whoever
    // waits for the acknowledgement must not get it.
    bool waited = options.wait == CommitWait::kFlush && !options.read_only;
    if (committed && cancelled_for_shutdown && waited) {
        error = make_error(ERRCODE_QUERY_CANCELED, "commit not confirmed because of the shutdown");
        return false;
    }
    return committed;
}

bool run_subtransaction(void (*fn)(void*), void* arg, Error& error) {
    SubRun run{{CurrentMemoryContext, CurrentResourceOwner}, fn, arg};
    int level = GetCurrentTransactionNestLevel();
    std::exception_ptr thrown;
    bool released = false;
    try {
        released = run_guarded(run_and_release, &run, error);
    } catch (...) {
        thrown = std::current_exception();
    }
    if (!released && GetCurrentTransactionNestLevel() > level) {
        Error while_rolling_back;
        // If even that fails, the transaction around it must not go on.
        if (!run_guarded(
                [](void* before) {
                    roll_back_subtransaction(*static_cast<const Savepoint*>(before));
                },
                &run.before, while_rolling_back))
            throw Raised(std::move(while_rolling_back));
    }
    if (thrown) std::rethrow_exception(thrown);
    return released;
}

}  // namespace internal

}  // namespace pgmqtt::pg
