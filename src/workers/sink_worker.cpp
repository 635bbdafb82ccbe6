// pgmqtt sink: runs the sinks.
#include "pg/worker.h"

extern "C" {
#include <pgstat.h>
}

#include "pg/extension.h"
#include "pg/guard.h"
#include "pg/log.h"
#include "sink/sinks.h"
#include "workers/main.h"

namespace pgmqtt::workers {

void run_sink(Datum) {
    pg::WorkerProcess process(pg::Worker::kSink);
    pg::WaitSet wait;
    while (process.wait_for_extension(wait)) {
        sink::Sinks sinks;
        while (!process.stopping() && pg::extension_exists()) {
            sinks.turn();
            wait.wait(sinks.timeout_ms(), PG_WAIT_EXTENSION);
            process.housekeeping();
        }
    }
    process.exit();
}

}  // namespace pgmqtt::workers

PGMQTT_WORKER_MAIN(pgmqtt_sink_main, pgmqtt::workers::run_sink)
