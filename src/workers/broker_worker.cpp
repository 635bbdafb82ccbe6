// pgmqtt broker: accepts clients and routes messages. Runs no SQL in its loop but at the start, when
// sinks change, and to check a password.
#include "pg/worker.h"

extern "C" {
#include <pgstat.h>
}

#include "workers/broker_loop.h"
#include "workers/main.h"

namespace pgmqtt::workers {

void run_broker(Datum) {
    pg::WorkerProcess process(pg::Worker::kBroker);
    pg::WaitSet idle;
    while (process.wait_for_extension(idle)) {
        BrokerLoop loop;
        pg::WaitSet wait;
        wait.add_descriptor(loop.poll_fd());
        loop.start();
        while (!process.stopping() && process.extension_exists()) {
            loop.turn();
            wait.wait(loop.timeout_ms(), PG_WAIT_EXTENSION);
            if (process.housekeeping()) loop.configure();
        }
        loop.shut_down(wait);
    }
    process.exit();
}

}  // namespace pgmqtt::workers

PGMQTT_WORKER_MAIN(pgmqtt_broker_main, pgmqtt::workers::run_broker)
