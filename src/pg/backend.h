// PostgreSQL's own headers, before anything of the standard library (its macros are picky), and the
// differences between server versions 14 to 18 that our code meets. Files that know the server
// begin with this.
#pragma once

extern "C" {
#include <postgres.h>

#include <fmgr.h>
#include <miscadmin.h>
#include <pgstat.h>
#include <replication/message.h>
#include <storage/latch.h>
#include <storage/lock.h>
#include <storage/proc.h>
#include <storage/shm_mq.h>
#include <utils/guc.h>
#include <utils/memutils.h>
#include <utils/resowner.h>
}

namespace pgmqtt::pg {

// This process's index in the server's array of processes, and the latch behind such an index.
inline int own_process_number() {
#if PG_VERSION_NUM >= 170000
    return MyProcNumber;
#else
    return MyProc->pgprocno;
#endif
}

inline PGPROC* process_of_number(int number) {
    return &ProcGlobal->allProcs[number];
}

inline bool holds_lock(const LOCKTAG* tag, LOCKMODE mode) {
#if PG_VERSION_NUM >= 170000
    return LockHeldByMe(tag, mode, false);
#else
    return LockHeldByMe(tag, mode);
#endif
}

// Visible to the receiver at once, also when it does not fill the ring.
inline shm_mq_result send_nowait(shm_mq_handle* queue, const void* data, Size size) {
#if PG_VERSION_NUM >= 150000
    return shm_mq_send(queue, size, data, true, true);
#else
    return shm_mq_send(queue, size, data, true);
#endif
}

// Flushes table statistics. True when some are left for later.
inline bool report_statistics(bool force) {
#if PG_VERSION_NUM >= 150000
    return pgstat_report_stat(force) > 0;
#else
    pgstat_report_stat(force);
    return false;
#endif
}

// A set that lives as long as the process.
inline WaitEventSet* create_wait_event_set(int capacity) {
#if PG_VERSION_NUM >= 170000
    return CreateWaitEventSet(nullptr, capacity);
#else
    return CreateWaitEventSet(TopMemoryContext, capacity);
#endif
}

// A logical decoding message of this transaction.
inline void log_logical_message(const char* prefix, const char* message, Size size) {
#if PG_VERSION_NUM >= 170000
    LogLogicalMessage(prefix, message, size, true, false);
#else
    LogLogicalMessage(prefix, message, size, true);
#endif
}

inline void reserve_setting_prefix(const char* prefix) {
#if PG_VERSION_NUM >= 150000
    MarkGUCPrefixReserved(prefix);
#else
    EmitWarningsOnPlaceholders(prefix);
#endif
}

}  // namespace pgmqtt::pg
