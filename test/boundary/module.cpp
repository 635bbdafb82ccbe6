// The test module: the objects of src/pg with SQL functions and workers that provoke what they
// claim. Preloaded in place of pgmqtt, so it has the shared memory and the hooks to itself.
#include "pg/backend.h"

extern "C" {
#include <postmaster/bgworker.h>
}

#include "pg/settings.h"
#include "pg/shared.h"

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
void _PG_init(void);
}
#pragma GCC visibility pop

static void register_worker(const char* name, const char* function) {
    BackgroundWorker entry{};
    entry.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    entry.bgw_start_time = BgWorkerStart_RecoveryFinished;
    entry.bgw_restart_time = 1;
    strlcpy(entry.bgw_name, name, BGW_MAXLEN);
    strlcpy(entry.bgw_type, name, BGW_MAXLEN);
    strlcpy(entry.bgw_library_name, "pgmqtt_boundary", BGW_MAXLEN);
    strlcpy(entry.bgw_function_name, function, BGW_MAXLEN);
    RegisterBackgroundWorker(&entry);
}

void _PG_init(void) {
    pgmqtt::pg::define_settings();
    if (!process_shared_preload_libraries_in_progress) return;
    pgmqtt::pg::request_shared_memory();
    register_worker("boundary broker", "boundary_broker_main");
    register_worker("boundary store", "boundary_store_main");
    register_worker("boundary survivor", "boundary_survivor_main");
}
