// pgmqtt store: the single writer of the broker's state.
#include "pg/worker.h"

extern "C" {
#include <pgstat.h>
}

#include <algorithm>
#include <chrono>

#include "pg/extension.h"
#include "pg/settings.h"
#include "pg/shared.h"
#include "store/store.h"
#include "workers/main.h"

namespace pgmqtt::workers {

namespace {

using Clock = std::chrono::steady_clock;

// How long a broker may take to notice that the server shuts down.
constexpr std::chrono::milliseconds kNoticed{200};
constexpr long kPollMs = 20;

// A server that shuts down tells all workers at once. What the broker sends while it says goodbye
// to its clients is written and acknowledged, too; how long that takes is bounded by
// shutdown_timeout.
void outlast_broker(store::Store& store, pg::WorkerProcess& process, pg::WaitSet& wait) {
    Clock::time_point now = Clock::now();
    Clock::time_point noticed = now + kNoticed;
    Clock::time_point deadline = now + std::chrono::milliseconds(pg::settings.shutdown_timeout);
    pg::Shared* shared = pg::shared();
    auto stays = [shared] {
        return shared->workers[static_cast<int>(pg::Worker::kBroker)].pid != 0;
    };
    while (stays() && now < deadline && (shared->broker_leaving || now < noticed)) {
        store.turn();
        long timeout = store.timeout_ms();
        wait.wait(timeout < 0 ? kPollMs : std::min(timeout, kPollMs), PG_WAIT_EXTENSION);
        process.housekeeping();
        now = Clock::now();
    }
}

}  // namespace

void run_store(Datum) {
    pg::WorkerProcess process(pg::Worker::kStore);
    pg::WaitSet wait;
    while (process.wait_for_extension(wait)) {
        store::Store store;
        while (!process.stopping() && pg::extension_exists()) {
            store.turn();
            wait.wait(store.timeout_ms(), PG_WAIT_EXTENSION);
            process.housekeeping();
        }
        if (process.stopping() && pg::extension_exists()) outlast_broker(store, process, wait);
    }
    process.exit();
}

}  // namespace pgmqtt::workers

PGMQTT_WORKER_MAIN(pgmqtt_store_main, pgmqtt::workers::run_store)
