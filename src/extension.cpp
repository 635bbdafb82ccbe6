// Where the server meets the library: settings, shared memory, workers. Nothing else.
#include "pg/backend.h"

#include "pg/settings.h"
#include "pg/shared.h"
#include "pg/worker.h"

#pragma GCC visibility push(default)
extern "C" {
PG_MODULE_MAGIC;
void _PG_init(void);
}
#pragma GCC visibility pop

void _PG_init(void) {
    pgmqtt::pg::define_settings();
    // Loaded by a session, not at server start: SQL objects work, the broker does not run, and
    // functions that need it say which line to add (pg::require_preload).
    if (!process_shared_preload_libraries_in_progress) return;
    pgmqtt::pg::request_shared_memory();
    pgmqtt::pg::register_workers();
}
