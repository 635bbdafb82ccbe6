// The extension's shared memory: who is running, who waits for whom, what changed, counters.
#pragma once

#include "pg/backend.h"

#include <atomic>
#include <cstdint>

#include "broker/counters.h"
#include "pg/batch_times.h"
#include "pg/sink_slot.h"

namespace pgmqtt::pg {

enum class Worker : int { kBroker, kStore, kSink, kCdc };
inline constexpr int kWorkerCount = 4;
const char* worker_name(Worker worker);  // "pgmqtt broker": pg_stat_activity.backend_type

enum class CdcState : int { kStopped, kStarting, kStreaming, kDisabled };

// As Shared::cdc_waits_for_pid: the transaction is a prepared one, no process has it.
inline constexpr int kPreparedTransaction = -1;

struct WorkerSlot {
    std::atomic<int> pid;       // 0: not running
    std::atomic<int> pgprocno;  // index of its latch; -1: not running
};

// The relations whose changes the cdc worker wants to hear of at their commit. Written by that
// worker, read by every committing backend.
struct WatchedRelations {
    static constexpr int kCapacity = 64;
    static constexpr int kOverflow = -1;  // as `count`: more than fit, so every commit counts

    std::atomic<int> count;
    std::atomic<uint32_t> version;  // odd while being written
    std::atomic<uint32_t> relations[kCapacity];
};

// What pgmqtt.mappings shows of one mapping, or of the whole stream. Written by the cdc worker
// only; `version` is odd meanwhile. See cdc/status.h.
struct MappingStatus {
    static constexpr int kStream = -1;  // as id: not a mapping, the stream that feeds them
    static constexpr int kMessageSize = 240;

    std::atomic<int> id;  // 0: free
    std::atomic<uint32_t> version;
    std::atomic<uint64_t> rows;  // changes that were evaluated
    std::atomic<uint64_t> filtered;
    std::atomic<uint64_t> published;
    std::atomic<uint64_t> errors;
    std::atomic<uint64_t> commit_lsn;  // of the latest of them
    std::atomic<int64_t> commit_at;    // TimestampTz; 0: none yet
    BatchTimes times;
    char state[16];
    char message[kMessageSize];
};
inline constexpr int kMappingStatusCount = 256;  // further mappings work, but nobody sees how

// Lives in shared memory, so: no pointers, no constructors that matter, atomics that are lock-free.
struct Shared {
    WorkerSlot workers[kWorkerCount];

    // Grows at the commit of anything that changes mappings, sinks or the extension's existence.
    std::atomic<uint64_t> configuration;
    // Grows at the commit of a transaction that called publish().
    std::atomic<uint64_t> outbox;
    // Grows at the commit of a transaction that asked something of the broker.
    std::atomic<uint64_t> commands;
    // Grows when a transaction that may have touched a mapped table commits.
    std::atomic<uint64_t> changes;
    WatchedRelations watched;
    // The database that the workers are connected to; 0: none yet.
    std::atomic<uint32_t> database;

    // What the workers have caught up with.
    std::atomic<uint64_t> cdc_configuration;
    std::atomic<uint64_t> sink_configuration;
    std::atomic<uint64_t> broker_configuration;  // sinks are subscribed
    std::atomic<uint64_t> commands_done;         // carried out by the broker, and stored so
    // The configuration that some worker last found without the extension.
    std::atomic<uint64_t> without_extension;
    std::atomic<bool> foreign_extension;  // or with one that another build made
    std::atomic<int> cdc_state;           // CdcState
    std::atomic<int> cdc_waits_for_pid;   // slot creation waits for this backend; 0: for none
    std::atomic<int> cdc_evaluation;      // 0: none, 1: may be interrupted, 2: somebody does
    std::atomic<uint64_t> cdc_confirmed_lsn;
    std::atomic<int64_t> cdc_started_at;  // TimestampTz
    std::atomic<uint64_t> cdc_decoded_lsn;
    std::atomic<uint64_t> cdc_commit_lsn;  // of the latest transaction that was evaluated
    std::atomic<int64_t> cdc_commit_at;    // TimestampTz; 0: none yet
    std::atomic<int64_t> cdc_current_at;   // commit of what is under way, TimestampTz; 0: nothing
    std::atomic<uint64_t> cdc_waiting_bytes;  // decoded, not evaluated
    std::atomic<uint64_t> cdc_spilled_bytes;  // of those, written to a file; ever
    BatchTimes cdc_times;
    std::atomic<uint64_t> cdc_transactions;
    std::atomic<uint64_t> cdc_changes;  // decoded
    std::atomic<uint64_t> cdc_filtered;
    std::atomic<uint64_t> cdc_published;
    std::atomic<uint64_t> cdc_errors;
    MappingStatus mapping_status[kMappingStatusCount];
    std::atomic<uint64_t> sink_rows;  // messages given to sinks and committed
    std::atomic<uint64_t> sink_dead_letters;
    std::atomic<uint64_t> sink_retries;
    SinkSlot sinks[kSinkSlots];
    // The connection to the broker up to which the store worker has written all that came.
    std::atomic<uint32_t> store_epoch;
    std::atomic<uint64_t> store_batches;
    std::atomic<uint64_t> store_records;

    // How often the armed failpoint was passed. See pg/failpoint.h.
    std::atomic<uint64_t> failpoint_hits;

    // Segments of backends that wait for the broker to take them up; 0: free. See pg/inquiry.h.
    std::atomic<uint32_t> inquiries[16];

    std::atomic<bool> broker_listening;
    std::atomic<bool> broker_leaving;        // says goodbye to its clients
    std::atomic<int64_t> broker_started_at;  // TimestampTz
    std::atomic<bool> database_missing;      // a worker could not connect: be quiet about it
    std::atomic<bool> database_connected;    // a worker could: the others need not wait
    std::atomic<int> database_probe;         // pid of the worker that tries first
    std::atomic<uint64_t> broker_counters[sizeof(broker::Counters) / sizeof(uint64_t)];
};

// In _PG_init, before and after the server sets up shared memory: installs the hooks.
void request_shared_memory();

// Null when the library was not preloaded: then there are no workers either.
Shared* shared();

// ERROR object_not_in_prerequisite_state with the line to add, unless preloaded; also in a database
// that is not served, and where another build made the extension. May raise.
void require_preload();

// ERROR object_not_in_prerequisite_state unless this is the database of pgmqtt.database. May raise.
void require_served_database();

// Sets the worker's latch; nothing happens when it is not running.
void wake(Worker worker);
void wake_all();
// Ends the statement that the worker is in, if any, as pg_cancel_backend() would: it tries again
// later, and meanwhile sees what has changed.
void cancel_statement(Worker worker);

// Counts events of this transaction that the workers must hear of at its commit, and wakes them
// then. A rolled back subtransaction costs a false alarm at most. See events.cpp.
enum class Event : int { kConfiguration, kOutbox, kChanges, kCommand };
void at_commit(Event event);

// Of the cdc worker: from now on a commit that wrote to one of these (in this database) counts as
// kChanges. More than WatchedRelations::kCapacity: every commit that wrote does.
void set_watched_relations(const Oid* relations, int count);

// Called by request_shared_memory(): callbacks and hooks, inherited by every backend.
void install_event_hooks();

}  // namespace pgmqtt::pg
