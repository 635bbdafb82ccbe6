// pgmqtt store: the single writer of the broker's state.
#include "pg/worker.h"

extern "C" {
#include <pgstat.h>
}

#include "pg/guard.h"
#include "pg/log.h"
#include "store/store.h"
#include "workers/main.h"

namespace pgmqtt::workers {

void run_store(Datum) {
    pg::WorkerProcess process(pg::Worker::kStore);
    pg::WaitSet wait;
    while (process.wait_for_extension(wait)) {
        store::Store store;
        while (!process.stopping() && process.extension_exists()) {
            store.turn();
            wait.wait(store.timeout_ms(), PG_WAIT_EXTENSION);
            process.housekeeping();
        }
    }
    process.exit();
}

}  // namespace pgmqtt::workers

PGMQTT_WORKER_MAIN(pgmqtt_store_main, pgmqtt::workers::run_store)
