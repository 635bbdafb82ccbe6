// A worker that raises, throws and goes on. What it counts is in fields of Shared that nothing else
// uses here.
#include "pg/backend.h"

extern "C" {
#include <executor/spi.h>
#include <utils/builtins.h>
#include <utils/memutils.h>
}

#include <stdexcept>

#include "pg/guard.h"
#include "pg/shared.h"
#include "pg/statement.h"
#include "pg/transaction.h"
#include "pg/worker.h"
#include "workers/main.h"

namespace pg = pgmqtt::pg;

namespace {

// Names for the borrowed fields.
std::atomic<uint64_t>& rounds_wanted() {
    return pg::shared()->cdc_confirmed_lsn;
}
std::atomic<uint64_t>& stuck_wanted() {
    return pg::shared()->cdc_configuration;
}
std::atomic<uint64_t>& rounds_done() {
    return pg::shared()->cdc_published;
}
std::atomic<uint64_t>& errors_survived() {
    return pg::shared()->cdc_errors;
}
std::atomic<uint64_t>& exceptions_survived() {
    return pg::shared()->sink_retries;
}
std::atomic<uint64_t>& bytes_before() {
    return pg::shared()->sink_rows;
}
std::atomic<uint64_t>& bytes_after() {
    return pg::shared()->sink_dead_letters;
}

uint64_t memory_in_use() {
    return MemoryContextMemAllocated(TopMemoryContext, true);
}

void provoke(const pg::TransactionOptions& options, bool exception) {
    try {
        pg::Status status = pg::transaction(options, [exception] {
            SPI_execute("CREATE TABLE public.never (a int)", false, 0);
            if (exception) throw std::runtime_error("out of a transaction");
            SPI_execute("SELECT 1/0", false, 0);
        });
        if (!status && status.error().sqlstate_text() == "22012") ++errors_survived();
    } catch (const std::runtime_error&) {
        ++exceptions_survived();
    }
}

void run_rounds(uint64_t count, pg::WorkerProcess& process) {
    pg::Statement statement("SELECT count(*) FROM pg_catalog.pg_class WHERE oid = 1259", {});
    uint64_t before = 0;
    for (uint64_t i = 0; i < count; ++i) {
        // The caches of the server fill in the first tenth.
        if (i == count / 10) before = memory_in_use();
        pg::TransactionOptions options{.read_only = i % 2 == 0,
                                       .wait = static_cast<pg::CommitWait>(i % 3),
                                       .activity = "boundary: rounds"};
        (void)pg::transaction(options, [&statement] {
            (void)palloc(100000);
            statement.execute(nullptr);
        });
        if (i % 50 == 0) {
            options.read_only = false;
            provoke(options, i % 100 == 0);
        }
        process.housekeeping();
    }
    bytes_before() = before;
    bytes_after() = memory_in_use();
    rounds_done() = count;
}

void run_survivor(Datum) {
    pg::WorkerProcess process(pg::Worker::kSink);
    pg::WaitSet wait;
    uint64_t seen = 0;
    while (!process.stopping()) {
        if (rounds_wanted() != seen) run_rounds(seen = rounds_wanted(), process);
        if (stuck_wanted().exchange(0) != 0)
            (void)pg::transaction({.activity = "boundary: stuck"},
                                  [] { SPI_execute("SELECT pg_sleep(1000)", false, 0); });
        process.housekeeping();
        if (!process.stopping()) wait.wait(-1, PG_WAIT_EXTENSION);
    }
    process.exit();
}

}  // namespace

PGMQTT_WORKER_MAIN(boundary_survivor_main, run_survivor)

PGMQTT_FUNCTION(boundary_run_rounds) {
    rounds_wanted() = static_cast<uint64_t>(PG_GETARG_INT64(0));
    pg::wake(pg::Worker::kSink);
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(boundary_get_stuck) {
    stuck_wanted() = 1;
    pg::wake(pg::Worker::kSink);
    PG_RETURN_VOID();
}

// rounds, errors, exceptions, bytes before, bytes after
PGMQTT_FUNCTION(boundary_survived) {
    char* line =
        psprintf("%lu %lu %lu %lu %lu", rounds_done().load(), errors_survived().load(),
                 exceptions_survived().load(), bytes_before().load(), bytes_after().load());
    return CStringGetTextDatum(line);
}
