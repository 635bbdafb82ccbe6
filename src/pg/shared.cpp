#include "pg/shared.h"

extern "C" {
#include <commands/dbcommands.h>
#include <storage/ipc.h>
#include <storage/lwlock.h>
#include <storage/shmem.h>
}

#include <csignal>
#include <cstring>
#include <new>

#include "pg/extension.h"
#include "pg/failpoint.h"
#include "pg/queue.h"
#include "pg/settings.h"

namespace pgmqtt::pg {
namespace {

Shared* shared_memory = nullptr;
shmem_startup_hook_type previous_startup_hook = nullptr;

Size memory_size() {
    return add_size(CACHELINEALIGN(sizeof(Shared)), link_memory_size());
}

// Runs again after a crash: the memory is new then.
void start_up() {
    if (previous_startup_hook != nullptr) previous_startup_hook();
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    bool found = false;
    char* memory = static_cast<char*>(ShmemInitStruct("pgmqtt", memory_size(), &found));
    if (!found) {
        shared_memory = new (memory) Shared();
        for (WorkerSlot& worker : shared_memory->workers) worker.pgprocno = -1;
        initialize_link_memory(memory + CACHELINEALIGN(sizeof(Shared)));
    }
    LWLockRelease(AddinShmemInitLock);
    if (!found) arm_failpoint();
}

#if PG_VERSION_NUM >= 150000
shmem_request_hook_type previous_request_hook = nullptr;

void request() {
    if (previous_request_hook != nullptr) previous_request_hook();
    RequestAddinShmemSpace(memory_size());
}
#endif

}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free, "Shared is for several processes");

const char* worker_name(Worker worker) {
    static constexpr const char* kNames[kWorkerCount] = {"pgmqtt broker", "pgmqtt store",
                                                         "pgmqtt sink", "pgmqtt cdc"};
    return kNames[static_cast<int>(worker)];
}

void request_shared_memory() {
#if PG_VERSION_NUM >= 150000
    previous_request_hook = shmem_request_hook;
    shmem_request_hook = request;
#else
    RequestAddinShmemSpace(memory_size());
#endif
    previous_startup_hook = shmem_startup_hook;
    shmem_startup_hook = start_up;
    install_event_hooks();
}

Shared* shared() {
    return shared_memory;
}

void require_preload() {
    if (shared_memory != nullptr) {
        require_served_database();
        return require_own_schema();
    }
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("pgmqtt is not preloaded, so its broker does not run"),
                    errhint("Add pgmqtt to shared_preload_libraries and restart the server.")));
}

// Also met by a copy of the database, which carries the extension along.
void require_served_database() {
    const char* here = get_database_name(MyDatabaseId);
    if (here == nullptr || std::strcmp(here, settings.database) == 0) return;
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("database \"%s\" is not served by pgmqtt", here),
             errdetail("The broker serves one database, which pgmqtt.database names: \"%s\".",
                       settings.database),
             errhint("Connect to database \"%s\", or set pgmqtt.database to \"%s\" and "
                     "restart the server.",
                     settings.database, here)));
}

void wake(Worker worker) {
    if (shared_memory == nullptr) return;
    int number = shared_memory->workers[static_cast<int>(worker)].pgprocno.load();
    // If the worker has just gone, its latch belongs to someone else, who looks around and sleeps
    // on.
    if (number >= 0) SetLatch(&process_of_number(number)->procLatch);
}

void cancel_statement(Worker worker) {
    if (shared_memory == nullptr) return;
    int pid = shared_memory->workers[static_cast<int>(worker)].pid.load();
    if (pid > 0) kill(pid, SIGINT);
}

void wake_all() {
    for (int i = 0; i < kWorkerCount; ++i) wake(static_cast<Worker>(i));
}

}  // namespace pgmqtt::pg
