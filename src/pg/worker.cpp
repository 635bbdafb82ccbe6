#include "pg/worker.h"

extern "C" {
#include <access/heapam.h>
#include <access/table.h>
#include <access/tableam.h>
#include <catalog/pg_database.h>
#include <postmaster/bgworker.h>
#include <postmaster/interrupt.h>
#include <storage/ipc.h>
#include <storage/procsignal.h>
#include <utils/backend_status.h>
}

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "pg/extension.h"
#include "pg/guard.h"
#include "pg/log.h"
#include "pg/settings.h"
#include "pg/transaction.h"

namespace pgmqtt::pg {
namespace {

using Clock = std::chrono::steady_clock;

// A worker that waits for its database hears of CREATE DATABASE; this is for what it may miss.
constexpr long kDatabasePollMs = 5000;
// Statistics reach the shared ones at least this often while a worker does something.
constexpr std::chrono::milliseconds kStatisticsDelay{10000};

volatile sig_atomic_t terminate_requested = 0;
bool connecting = false;  // what happens now decides whether the database is there

// --- signals

timer_t cancel_timer;
bool has_cancel_timer = false;

// Half of shutdown_timeout after SIGTERM, and often from then on, what still waits for a lock or
// runs a user's function is cancelled: `die` is not for us (it would leave clients without a word),
// but a server that shuts down does not wait for ever either. timer_settime is async-signal-safe.
void start_cancel_timer() {
    if (!has_cancel_timer) return;
    long first_ms = settings.shutdown_timeout / 2;
    itimerspec when{};
    when.it_value.tv_sec = first_ms / 1000;
    when.it_value.tv_nsec = first_ms % 1000 * 1000000L;
    when.it_interval.tv_nsec = 100 * 1000000L;
    timer_settime(cancel_timer, 0, &when, nullptr);
}

void on_terminate([[maybe_unused]] SIGNAL_ARGS) {
    int saved_errno = errno;
    if (!terminate_requested) start_cancel_timer();
    terminate_requested = 1;
    SetLatch(MyLatch);
    errno = saved_errno;
}

void on_cancel_timer([[maybe_unused]] SIGNAL_ARGS) {
    int saved_errno = errno;
    if (!proc_exit_inprogress) {
        internal::cancelled_for_shutdown = 1;
        QueryCancelPending = true;
        InterruptPending = true;
    }
    SetLatch(MyLatch);
    errno = saved_errno;
}

void install_signal_handlers() {
    pqsignal(SIGTERM, on_terminate);
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGUSR2, on_cancel_timer);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR2;
    has_cancel_timer = timer_create(CLOCK_MONOTONIC, &event, &cancel_timer) == 0;
    BackgroundWorkerUnblockSignals();
}

// --- statistics

bool statistics_pending = false;
Clock::time_point statistics_due;

// Outside a transaction the server's own clock for this stands still, so we bring one.
void flush_statistics() {
    bool overdue = statistics_pending && Clock::now() >= statistics_due;
    bool pending = report_statistics(overdue);
    if (pending && !statistics_pending) statistics_due = Clock::now() + kStatisticsDelay;
    statistics_pending = pending;
}

// --- the database

// Settings of the database or the superuser that would change what the workers' own statements
// mean. Users' statements are run under search paths of their own.
struct Pin {
    const char* name;
    const char* value;
};
constexpr Pin kPins[] = {
    {"role", "none"},
    {"search_path", "pg_catalog, pg_temp"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_isolation", "read committed"},
    {"default_transaction_deferrable", "off"},
    // A locked table is tried again, and the worker stays able to end meanwhile. It gives way
    // before deadlock_timeout would end a user's DDL instead: DROP EXTENSION locks our tables one
    // by one.
    {"lock_timeout", "200ms"},
    {"statement_timeout", "0"},
#if PG_VERSION_NUM >= 170000
    {"transaction_timeout", "0"},
#endif
    {"row_security", "on"},
    {"session_replication_role", "origin"},
};

void leave_slot(int, Datum self) {
    Shared* memory = shared();
    WorkerSlot& slot = memory->workers[DatumGetInt32(self)];
    slot.pgprocno = -1;
    slot.pid = 0;
    if (!connecting) return;
    memory->database_missing = true;
    memory->database_connected = false;
    memory->database_probe = 0;
    wake_all();
}

// A worker without a database reads the shared catalogs only, and those without their indexes.
bool database_accepts_connections() {
    bool found = false;
    value_or_throw(transaction({.read_only = true}, [&found] {
        Relation relation = table_open(DatabaseRelationId, AccessShareLock);
        TableScanDesc scan = table_beginscan_catalog(relation, 0, nullptr);
        while (HeapTuple tuple = heap_getnext(scan, ForwardScanDirection)) {
            auto database = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
            constexpr int kInvalid = -2;  // DATCONNLIMIT_INVALID_DB: an interrupted DROP DATABASE
            if (std::strcmp(NameStr(database->datname), settings.database) == 0)
                found = database->datallowconn && database->datconnlimit != kInvalid;
        }
        table_endscan(scan);
        table_close(relation, AccessShareLock);
    }));
    return found;
}

// Ends with the process: only a new one can connect to the database when it is there.
[[noreturn]] void wait_for_database(WorkerProcess& process, Worker self) {
    value_or_throw(guard([] { BackgroundWorkerInitializeConnection(nullptr, nullptr, 0); }));
    WaitSet wait;
    bool told = self != Worker::kBroker;
    uint64_t configuration = shared()->configuration;  // read before each look
    while (!process.stopping() && !database_accepts_connections()) {
        if (!told)
            log(LOG,
                "pgmqtt waits for database \"" + std::string(settings.database) +
                    "\", which pgmqtt.database names",
                {}, "Create it, or set pgmqtt.database and restart the server.");
        told = true;
        // The look sets the latch itself.
        bool timeout = false;
        while (!process.stopping() && !timeout && shared()->configuration == configuration) {
            timeout = wait.wait(kDatabasePollMs, PG_WAIT_EXTENSION).timeout;
            process.housekeeping();
        }
        configuration = shared()->configuration;
    }
    if (!process.stopping()) shared()->database_missing = false;
    process.exit();
}

void register_worker(Worker worker, const char* function) {
    BackgroundWorker entry{};
    entry.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    entry.bgw_start_time = BgWorkerStart_RecoveryFinished;
    entry.bgw_restart_time = 1;
    strlcpy(entry.bgw_name, worker_name(worker), BGW_MAXLEN);
    strlcpy(entry.bgw_type, worker_name(worker), BGW_MAXLEN);
    strlcpy(entry.bgw_library_name, "pgmqtt", BGW_MAXLEN);
    strlcpy(entry.bgw_function_name, function, BGW_MAXLEN);
    entry.bgw_main_arg = Int32GetDatum(static_cast<int>(worker));
    RegisterBackgroundWorker(&entry);
}

}  // namespace

namespace internal {

long statistics_due_ms() {
    if (!statistics_pending) return -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(statistics_due - Clock::now());
    return left.count() > 0 ? static_cast<long>(left.count()) : 0;
}

}  // namespace internal

void register_workers() {
    register_worker(Worker::kBroker, "pgmqtt_broker_main");
    register_worker(Worker::kStore, "pgmqtt_store_main");
    register_worker(Worker::kSink, "pgmqtt_sink_main");
    register_worker(Worker::kCdc, "pgmqtt_cdc_main");
}

WorkerProcess::WorkerProcess(Worker self) : self_(self) {
    install_signal_handlers();
    value_or_throw(guard([this] {
        before_shmem_exit(leave_slot, Int32GetDatum(static_cast<int>(self_)));
        turn_context_ =
            AllocSetContextCreate(TopMemoryContext, "pgmqtt turn", ALLOCSET_DEFAULT_SIZES);
    }));
    MemoryContextSwitchTo(turn_context_);
    WorkerSlot& slot = shared()->workers[static_cast<int>(self)];
    slot.pid = MyProcPid;
    slot.pgprocno = own_process_number();
    connect_to_database();
}

// The first failure to connect is FATAL, and there is no other way to learn of it. So that the log
// has that line once, one worker tries first and the others wait for what comes of it.
void WorkerProcess::connect_to_database() {
    Shared* memory = shared();
    int nobody = 0;
    while (!memory->database_missing && !memory->database_connected &&
           !memory->database_probe.compare_exchange_strong(nobody, MyProcPid)) {
        nobody = 0;
        value_or_throw(guard([] {
            WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
                      PG_WAIT_EXTENSION);
            ResetLatch(MyLatch);
            CHECK_FOR_INTERRUPTS();
        }));
        if (stopping()) exit();
    }
    if (memory->database_missing) {
        if (memory->database_probe == MyProcPid) memory->database_probe = 0;
        wait_for_database(*this, self_);
    }
    connecting = true;
    value_or_throw(guard([this] {
        BackgroundWorkerInitializeConnection(settings.database, nullptr, 0);
        for (const Pin& pin : kPins)
            SetConfigOption(pin.name, pin.value, PGC_SUSET, PGC_S_OVERRIDE);
        pgstat_report_appname(worker_name(self_));
        pgstat_report_activity(STATE_IDLE, nullptr);
    }));
    connecting = false;
    MemoryContextSwitchTo(turn_context_);
    memory->database = MyDatabaseId;
    memory->database_connected = true;
    memory->database_probe = 0;
    wake_all();
}

bool WorkerProcess::stopping() const {
    return terminate_requested != 0;
}

bool WorkerProcess::wait_for_extension(WaitSet& wait, void (*gone)()) {
    Oid foreign = InvalidOid;  // waited behind
    while (!stopping()) {
        bool found = serve_extension();
        if (OidIsValid(foreign) && found_extension() != foreign && gone != nullptr) gone();
        Oid told = std::exchange(foreign, found_is_foreign() ? found_extension() : InvalidOid);
        if (found) {
            served_ = true;
            return true;
        }
        bool was_served = std::exchange(served_, false);
        if (OidIsValid(foreign) && foreign != told && self_ == Worker::kBroker)
            report_foreign_extension();
        else if (was_served && !OidIsValid(foreign) && self_ == Worker::kBroker)
            log(LOG, "pgmqtt waits for CREATE EXTENSION: the extension was dropped");
        // Every transaction sets the latch, that of the look too.
        do {
            wait.wait(-1, PG_WAIT_EXTENSION);
            housekeeping();
        } while (!stopping() && !extension_may_have_changed());
    }
    return false;
}

bool WorkerProcess::housekeeping() {
    bool reloaded = false;
    // A cancel that found no statement to cancel ends here.
    Status interrupted = guard([] { CHECK_FOR_INTERRUPTS(); });
    if (!interrupted) log(DEBUG1, "pgmqtt had nothing to interrupt", interrupted.error());
    if (ConfigReloadPending) {
        ConfigReloadPending = false;
        Status read = guard([] { ProcessConfigFile(PGC_SIGHUP); });
        if (!read) log(WARNING, "pgmqtt could not read the configuration again", read.error());
        reloaded = true;
    }
    Status flushed = guard([this] {
        flush_statistics();
        MemoryContextReset(turn_context_);
    });
    if (!flushed) log(WARNING, "pgmqtt could not report its statistics", flushed.error());
    return reloaded;
}

void WorkerProcess::exit() {
    proc_exit(1);
}

}  // namespace pgmqtt::pg
