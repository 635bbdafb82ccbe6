// pgmqtt cdc: committed rows to publishes. Reads; dead letters are all it writes.
#include "pg/worker.h"

#include "cdc/stream.h"
#include "pg/extension.h"
#include "pg/guard.h"
#include "workers/main.h"

namespace pgmqtt::workers {

namespace {

void stream_changes(pg::WorkerProcess& process, pg::WaitSet& wait) {
    auto wanted = [&] { return !process.stopping() && pg::extension_exists(); };
    bool reloaded = false;
    cdc::Stream stream([&](long wait_ms) {
        if (wait_ms > 0) wait.wait(wait_ms, PG_WAIT_EXTENSION);
        reloaded |= process.housekeeping();
        return wanted();
    });
    while (wanted()) {
        stream.turn();
        wait.wait(stream.timeout_ms(), PG_WAIT_EXTENSION);
        reloaded |= process.housekeeping();
        if (reloaded) stream.settings_changed();
        reloaded = false;
    }
}

}  // namespace

void run_cdc(Datum) {
    pg::WorkerProcess process(pg::Worker::kCdc);
    pg::WaitSet wait;
    if (!process.stopping()) cdc::Stream::clean_up();
    while (process.wait_for_extension(wait, cdc::Stream::leave_nothing)) {
        stream_changes(process, wait);
        if (!process.stopping()) cdc::Stream::leave_nothing();
    }
    process.exit();
}

}  // namespace pgmqtt::workers

PGMQTT_WORKER_MAIN(pgmqtt_cdc_main, pgmqtt::workers::run_cdc)
