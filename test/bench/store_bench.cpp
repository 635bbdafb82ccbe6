// What the queue's log costs: a module that is loaded next to pgmqtt's tables, without its workers.
// SELECT store_bench(messages, payload bytes, messages per cycle, receivers) starts a worker; its
// numbers are in the server log. `make bench-store` builds it; test/bench/store_bench.py runs it.
#include "pg/backend.h"

extern "C" {
#include <access/xlog.h>
#include <postmaster/bgworker.h>
#include <sys/resource.h>
}

#include <chrono>
#include <cstdio>
#include <string>

#include "pg/log.h"
#include "pg/settings.h"
#include "pg/transaction.h"
#include "store/fetches.h"
#include "store/message_row.h"
#include "store/queue_log.h"

using namespace pgmqtt;
using broker::StoreKind;
using broker::StoreRecord;

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
void _PG_init(void);
void store_bench_main(Datum);
}
#pragma GCC visibility pop

void _PG_init(void) {
    pg::define_settings();
}

namespace {

struct Parameters {
    int64_t messages;
    int64_t payload;
    int64_t per_cycle;
    int64_t receivers;
};

double cpu_us() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    auto us = [](const timeval& t) { return 1e6 * double(t.tv_sec) + double(t.tv_usec); };
    return us(usage.ru_utime) + us(usage.ru_stime);
}

class Meter {
   public:
    explicit Meter(const char* what) : what_(what) {}
    void say(int64_t count, const std::string& more = {}) {
        char line[256];
        double wall =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        double wal = double(GetXLogInsertRecPtr() - wal_);
        snprintf(line, sizeof line, "bench %s: %ld in %.3f s, CPU %.2f us each, WAL %.1f B each%s",
                 what_, long(count), wall, (cpu_us() - cpu_) / double(count), wal / double(count),
                 more.c_str());
        pg::log(LOG, line);
    }

   private:
    const char* what_;
    double cpu_ = cpu_us();
    XLogRecPtr wal_ = GetXLogInsertRecPtr();
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void cycle(store::QueueLog& log, const broker::SessionChanges& changes) {
    broker::SessionNetEffect net = changes.net_effect();
    log.prepare(net, false);
    pg::value_or_throw(pg::transaction({.wait = pg::CommitWait::kNothing}, [&log] {
        log.lock();
        log.write();
    }));
    log.written(net);
    while (log.has_drained()) pg::value_or_throw(log.truncate());
}

void put(store::QueueLog& log, const Parameters& p) {
    std::string payload(static_cast<size_t>(p.payload), 'x');
    Meter meter("store");
    broker::SessionChanges changes;
    for (int64_t i = 1; i <= p.messages; ++i) {
        auto id = static_cast<uint64_t>(i);
        StoreRecord message{.kind = StoreKind::kMessage, .message_id = id};
        message.message = {.topic = "a/topic/of/some/thirty/bytes/1",
                           .payload = payload,
                           .qos = mqtt::Qos::k1,
                           .received_at = base::read_clocks().wall};
        changes.add(message);
        for (int64_t r = 1; r <= p.receivers; ++r) {
            StoreRecord delivery{.kind = StoreKind::kDelivery,
                                 .session_id = static_cast<uint64_t>(r),
                                 .message_id = id,
                                 .sequence = id};
            delivery.delivery.bytes = static_cast<uint32_t>(payload.size() + 30);
            changes.add(delivery);
        }
        if (i % p.per_cycle != 0 && i != p.messages) continue;
        cycle(log, changes);
        changes.clear();
    }
    meter.say(p.messages);
}

void load(const Parameters& p) {
    Meter meter("load");
    store::QueueLog log(store::LogKind::kLogged);
    pg::value_or_throw(log.load());
    meter.say(p.messages * p.receivers);
}

void fetch(store::QueueLog& log, const Parameters& p) {
    Meter meter("fetch");
    broker::BatchWriter answer(broker::BatchKind::kFetched);
    uint64_t next = 1;
    uint64_t missing = 0;
    while (next <= static_cast<uint64_t>(p.messages)) {
        answer.clear();
        pg::value_or_throw(pg::transaction({.read_only = true}, [&] {
            store::MessageReader reader(log.kind(), log.index());
            for (; next <= static_cast<uint64_t>(p.messages) && answer.size() < 1 << 20; ++next) {
                broker::FetchedRecord found{.message_id = next, .found = true, .message = {}};
                TupleTableSlot* row = reader.read(next);
                if (row == nullptr)
                    ++missing;
                else
                    found.message = store::message_of_row(row);
                answer.add(found);
            }
            reader.close();
        }));
    }
    meter.say(p.messages, ", missing " + std::to_string(missing));
}

void end(store::QueueLog& log, const Parameters& p) {
    Meter meter("end");
    broker::SessionChanges changes;
    for (int64_t i = 1; i <= p.messages; ++i) {
        for (int64_t r = 1; r <= p.receivers; ++r)
            changes.add({.kind = StoreKind::kDeliveryEnd,
                         .session_id = static_cast<uint64_t>(r),
                         .message_id = static_cast<uint64_t>(i),
                         .sequence = static_cast<uint64_t>(i)});
        if (i % p.per_cycle != 0 && i != p.messages) continue;
        cycle(log, changes);
        changes.clear();
    }
    meter.say(p.messages * p.receivers);
}

}  // namespace

void store_bench_main(Datum) {
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection("postgres", nullptr, 0);
    Parameters p;
    memcpy(&p, MyBgworkerEntry->bgw_extra, sizeof p);
    try {
        store::QueueLog log(store::LogKind::kLogged);
        pg::value_or_throw(log.load());
        put(log, p);
        load(p);
        fetch(log, p);
        end(log, p);
        pg::log(LOG, "bench done");
    } catch (const pg::Raised& raised) {
        pg::log(LOG, "bench failed", raised.error());
    }
}

PGMQTT_FUNCTION(store_bench) {
    Parameters p{PG_GETARG_INT64(0), PG_GETARG_INT64(1), PG_GETARG_INT64(2), PG_GETARG_INT64(3)};
    BackgroundWorker entry{};
    entry.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    entry.bgw_start_time = BgWorkerStart_RecoveryFinished;
    entry.bgw_restart_time = BGW_NEVER_RESTART;
    strlcpy(entry.bgw_name, "store bench", BGW_MAXLEN);
    strlcpy(entry.bgw_type, "store bench", BGW_MAXLEN);
    strlcpy(entry.bgw_library_name, "pgmqtt_store_bench", BGW_MAXLEN);
    strlcpy(entry.bgw_function_name, "store_bench_main", BGW_MAXLEN);
    memcpy(entry.bgw_extra, &p, sizeof p);
    if (!RegisterDynamicBackgroundWorker(&entry, nullptr)) elog(ERROR, "no worker");
    PG_RETURN_VOID();
}
