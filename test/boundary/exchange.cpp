// Two workers that play store and broker: numbered batches one way, the same bytes back. Whatever
// was not echoed when an end died is sent again, as the real ones do.
#include "pg/backend.h"

extern "C" {
#include <utils/builtins.h>
}

#include <deque>
#include <string>

#include "pg/guard.h"
#include "pg/queue.h"
#include "pg/shared.h"
#include "pg/worker.h"
#include "workers/main.h"

namespace pg = pgmqtt::pg;
namespace base = pgmqtt::base;

namespace {

constexpr size_t kLargest = 10 * 1024 * 1024;
constexpr size_t kWindow = 64;  // batches that wait for their echo

// Names for borrowed fields of Shared, which outlive a worker.
std::atomic<uint64_t>& wanted() {
    return pg::shared()->store_batches;
}
std::atomic<uint64_t>& echoed() {
    return pg::shared()->store_records;
}
std::atomic<uint64_t>& corrupted() {
    return pg::shared()->sink_configuration;
}
std::atomic<uint64_t>& connections() {
    return pg::shared()->cdc_changes;
}

uint64_t mixed(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

size_t size_of(uint64_t number) {
    uint64_t random = mixed(number);
    if (number % 250 == 0) return kLargest - random % 4096;
    if (random % 50 == 0) return 1 + random / 50 % (1024 * 1024);
    return 1 + random / 50 % 4096;
}

// Every byte follows from the batch's number, so both ends know what it must be.
void fill(uint64_t number, std::string& batch) {
    batch.resize(size_of(number));
    uint64_t state = mixed(~number);
    for (size_t i = 0; i < batch.size(); ++i) {
        if (i % 8 == 0) state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        batch[i] = static_cast<char>(state >> (i % 8 * 8));
    }
}

struct BrokerEnd {
    pg::Link link{pg::Worker::kBroker, pg::Worker::kStore};
    uint32_t epoch = 0;
    uint64_t next = 0;  // to send
    std::string scratch;

    void turn() {
        if (!link.connect()) return;
        if (link.epoch() != epoch) {
            epoch = link.epoch();
            next = echoed();
            ++connections();
        }
        base::ByteView batch;
        do {
            link.flush();
            while (link.unsent_bytes() == 0 && next < wanted() && next < echoed() + kWindow) {
                fill(next, scratch);
                if (!link.send(scratch)) return;
                ++next;
            }
            if (!link.receive(batch)) break;
            fill(echoed(), scratch);
            if (batch != scratch) ++corrupted();
            ++echoed();
        } while (true);
    }
};

struct StoreEnd {
    pg::Link link{pg::Worker::kStore, pg::Worker::kStore};

    void turn() {
        if (!link.connect()) return;
        base::ByteView batch;
        while (link.flush() && link.receive(batch)) {
            if (!link.send(std::string(batch))) return;
        }
    }
};

template <class End>
void run_end(pg::Worker worker) {
    pg::WorkerProcess process(worker);
    pg::WaitSet wait;
    End end;
    while (!process.stopping()) {
        end.turn();
        wait.wait(-1, PG_WAIT_EXTENSION);
        process.housekeeping();
    }
    process.exit();
}

void run_broker(Datum) {
    run_end<BrokerEnd>(pg::Worker::kBroker);
}
void run_store(Datum) {
    run_end<StoreEnd>(pg::Worker::kStore);
}

}  // namespace

PGMQTT_WORKER_MAIN(boundary_broker_main, run_broker)
PGMQTT_WORKER_MAIN(boundary_store_main, run_store)

PGMQTT_FUNCTION(boundary_exchange) {
    wanted() = static_cast<uint64_t>(PG_GETARG_INT64(0));
    pg::wake(pg::Worker::kBroker);
    PG_RETURN_VOID();
}

// echoed, corrupted, connections
PGMQTT_FUNCTION(boundary_exchanged) {
    char* line = psprintf("%lu %lu %lu", echoed().load(), corrupted().load(), connections().load());
    return CStringGetTextDatum(line);
}
