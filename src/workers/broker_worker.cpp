// pgmqtt broker: accepts clients and routes messages. Runs no SQL in its loop but at the start,
// when sinks change, and to check a password.
#include "pg/worker.h"

extern "C" {
#include <pgstat.h>
}

#include "pg/extension.h"
#include "workers/broker_loop.h"
#include "workers/main.h"

namespace pgmqtt::workers {

namespace {

// Whoever the start waits for sets the latch; this is for what may be missed.
constexpr long kStartPollMs = 1000;

}  // namespace

void run_broker(Datum) {
    pg::WorkerProcess process(pg::Worker::kBroker);
    pg::WaitSet idle;
    while (process.wait_for_extension(idle)) {
        BrokerLoop loop;
        pg::WaitSet wait;
        wait.add_descriptor(loop.poll_fd());
        auto wanted = [&process] { return !process.stopping() && pg::extension_exists(); };
        bool started = loop.start([&] {
            wait.wait(kStartPollMs, PG_WAIT_EXTENSION);
            process.housekeeping();
            return wanted();
        });
        if (!started) continue;
        pg::WaitSet::Ready ready{.latch = true};
        while (wanted()) {
            // What came is answered first; the rest has time.
            loop.turn(ready.latch || ready.timeout);
            if (process.housekeeping()) loop.configure();
            ready = wait.wait(loop.timeout_ms(), PG_WAIT_EXTENSION);
        }
        loop.shut_down(wait);
    }
    process.exit();
}

}  // namespace pgmqtt::workers

PGMQTT_WORKER_MAIN(pgmqtt_broker_main, pgmqtt::workers::run_broker)
