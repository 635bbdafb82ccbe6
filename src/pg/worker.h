// The life of a worker process: signals, the database connection, waiting for the extension.
#pragma once

#include "pg/backend.h"

#include "pg/shared.h"
#include "pg/wait.h"

namespace pgmqtt::pg {

namespace internal {
// Milliseconds until a worker's pending table statistics are to be flushed; -1: none pending.
long statistics_due_ms();
}  // namespace internal

// In _PG_init: registers the four static workers (RecoveryFinished, restart after 1 s).
void register_workers();

class WorkerProcess {
   public:
    // Signal handlers, connection to pgmqtt.database, own slot in shared memory. Where the database
    // is missing: one log line, then waits quietly until it exists.
    explicit WorkerProcess(Worker self);

    // True when SIGTERM came: end the turn and leave.
    bool stopping() const;

    // Waits (latch) until the extension exists in this database, and is not foreign. False:
    // stopping. From then on see pg/extension.h. `gone` is called when a foreign one was dropped:
    // nobody else tidies up behind it.
    bool wait_for_extension(WaitSet& wait, void (*gone)() = nullptr);

    // Once per turn, outside transactions: CHECK_FOR_INTERRUPTS (guarded), SIGHUP reload,
    // pgstat_report_stat; frees what the turn palloc'ed outside transactions. Returns true when
    // settings were reloaded.
    bool housekeeping();

    // exit code 1, so that the postmaster starts the worker again (unless it is shutting down).
    [[noreturn]] void exit();

   private:
    void connect_to_database();

    Worker self_;
    MemoryContext turn_context_ = nullptr;
    bool served_ = false;  // the extension was there
};

}  // namespace pgmqtt::pg
