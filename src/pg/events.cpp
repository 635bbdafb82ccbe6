// What the workers hear of at a commit in any backend. A transaction marks what it did (at_commit);
// the callback at its commit, when everybody can already see its rows, bumps counters in shared
// memory and sets latches. Nothing here may raise after the commit.
#include "pg/shared.h"

extern "C" {
#include <access/transam.h>
#include <access/xact.h>
#include <catalog/objectaccess.h>
#include <catalog/pg_database.h>
#include <catalog/pg_extension.h>
#include <commands/extension.h>
#include <nodes/parsenodes.h>
#include <tcop/utility.h>
}

#include <cstring>

namespace pgmqtt::pg {
namespace {

constexpr unsigned bit(Event event) {
    return 1U << static_cast<int>(event);
}
constexpr unsigned kAllEvents =
    bit(Event::kConfiguration) | bit(Event::kOutbox) | bit(Event::kChanges) | bit(Event::kCommand);

constexpr unsigned kExtensionDropped = 1U << 8;

// Of the current transaction. Those of a rolled back subtransaction stay: a false alarm is cheap.
unsigned marked = 0;

object_access_hook_type previous_object_access_hook = nullptr;
ProcessUtility_hook_type previous_utility_hook = nullptr;

// Writers hold RowExclusiveLock until the end of their transaction, TRUNCATE AccessExclusiveLock;
// no other mode on its own changes rows that logical decoding shows.
bool wrote_to(Oid relation) {
    LOCKTAG tag;
    SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
    return holds_lock(&tag, RowExclusiveLock) || holds_lock(&tag, AccessExclusiveLock);
}

// At commit, locks still held.
bool touched_watched_relation(WatchedRelations& watched) {
    int count = watched.count.load();
    if (count == 0) return false;  // the usual price: this load
    if (!TransactionIdIsValid(GetTopTransactionIdIfAny())) return false;
    if (MyDatabaseId != shared()->database.load(std::memory_order_relaxed)) return false;
    if (count == WatchedRelations::kOverflow) return true;
    uint32_t version = watched.version.load();
    for (int i = 0; i < count && i < WatchedRelations::kCapacity; ++i)
        if (wrote_to(watched.relations[i].load(std::memory_order_relaxed))) return true;
    // Read while being written: neither the old list nor the new one.
    std::atomic_thread_fence(std::memory_order_acquire);
    return version % 2 != 0 || version != watched.version.load();
}

void announce(unsigned events) {
    Shared* memory = shared();
    if (events & kExtensionDropped) {
        // Whatever statement of a mapping or a sink they are in, it is nobody's any more.
        cancel_statement(Worker::kCdc);
        cancel_statement(Worker::kSink);
    }
    if (events & bit(Event::kConfiguration)) {
        ++memory->configuration;
        wake_all();
    }
    if (events & bit(Event::kOutbox)) {
        ++memory->outbox;
        wake(Worker::kStore);
    }
    if (events & bit(Event::kCommand)) {
        ++memory->commands;
        wake(Worker::kStore);
    }
    if (events & bit(Event::kChanges)) {
        ++memory->changes;
        wake(Worker::kCdc);
    }
}

void at_transaction_event(XactEvent event, void*) {
    if (shared() == nullptr) return;
    switch (event) {
        case XACT_EVENT_COMMIT:
            if (touched_watched_relation(shared()->watched)) marked |= bit(Event::kChanges);
            if (marked != 0) announce(marked);
            marked = 0;
            break;
        case XACT_EVENT_ABORT:
        case XACT_EVENT_PREPARE:  // its events fire at COMMIT PREPARED
            marked = 0;
            break;
        default:
            break;
    }
}

// Extensions come, are updated and go; so do the databases that a worker may be waiting for.
void at_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
                      void* argument) {
    if (previous_object_access_hook != nullptr)
        previous_object_access_hook(access, class_id, object_id, sub_id, argument);
    if (class_id == ExtensionRelationId && (access == OAT_DROP || access == OAT_POST_ALTER)) {
        const char* name = get_extension_name(object_id);
        if (name != nullptr && std::strcmp(name, "pgmqtt") == 0)
            marked |= bit(Event::kConfiguration) | (access == OAT_DROP ? kExtensionDropped : 0U);
    } else if (class_id == DatabaseRelationId &&
               (access == OAT_POST_CREATE || access == OAT_POST_ALTER || access == OAT_DROP)) {
        at_commit(Event::kConfiguration);
    }
}

// A prepared transaction is committed by a process that does not know what it did: assume all.
void at_utility(PlannedStmt* statement, const char* query, bool read_only_tree,
                ProcessUtilityContext context, ParamListInfo parameters,
                QueryEnvironment* environment, DestReceiver* receiver,
                QueryCompletion* completion) {
    const Node* node = statement->utilityStmt;
    if (node != nullptr && IsA(node, TransactionStmt) &&
        reinterpret_cast<const TransactionStmt*>(node)->kind == TRANS_STMT_COMMIT_PREPARED) {
        marked |= kAllEvents;
    }
    ProcessUtility_hook_type next =
        previous_utility_hook != nullptr ? previous_utility_hook : standard_ProcessUtility;
    next(statement, query, read_only_tree, context, parameters, environment, receiver, completion);
}

}  // namespace

void install_event_hooks() {
    RegisterXactCallback(at_transaction_event, nullptr);
    previous_object_access_hook = object_access_hook;
    object_access_hook = at_object_access;
    previous_utility_hook = ProcessUtility_hook;
    ProcessUtility_hook = at_utility;
}

void at_commit(Event event) {
    marked |= bit(event);
}

void set_watched_relations(const Oid* relations, int count) {
    WatchedRelations& watched = shared()->watched;
    ++watched.version;
    if (count <= WatchedRelations::kCapacity)
        for (int i = 0; i < count; ++i)
            watched.relations[i].store(relations[i], std::memory_order_relaxed);
    watched.count = count <= WatchedRelations::kCapacity ? count : WatchedRelations::kOverflow;
    ++watched.version;
}

}  // namespace pgmqtt::pg
