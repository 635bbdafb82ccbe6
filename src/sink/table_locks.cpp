#include "sink/table_locks.h"

extern "C" {
#include <nodes/nodeFuncs.h>
#include <nodes/plannodes.h>
#include <storage/lmgr.h>
#include <utils/lsyscache.h>
}

namespace pgmqtt::sink {
namespace {

bool visit(Node* node, void* wait);

// Before PostgreSQL 16 the server declares walkers without their parameters.
#if PG_VERSION_NUM >= 160000
constexpr auto kVisit = visit;
#else
const auto kVisit = reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(visit));
#endif

// From PostgreSQL 16 on a view's entry is a subquery that keeps the view's relation.
bool is_relation(const RangeTblEntry& entry) {
    return entry.rtekind == RTE_RELATION ||
           (entry.rtekind == RTE_SUBQUERY && OidIsValid(entry.relid));
}

void lock(const RangeTblEntry& entry, LockWait wait) {
    if (!is_relation(entry)) return;
    if (wait == LockWait::kQueue) {
        LockRelationOid(entry.relid, entry.rellockmode);
        return;
    }
    if (ConditionalLockRelationOid(entry.relid, entry.rellockmode)) return;
    const char* name = get_rel_name(entry.relid);
    ereport(ERROR,
            (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
             errmsg("could not obtain lock on relation \"%s\"", name == nullptr ? "" : name)));
}

bool visit(Node* node, void* wait) {
    if (node == nullptr) return false;
    if (IsA(node, RangeTblEntry)) {
        lock(*reinterpret_cast<RangeTblEntry*>(node), *static_cast<LockWait*>(wait));
        return false;  // the walker goes on with what the entry holds
    }
    if (IsA(node, Query))
        return query_tree_walker(reinterpret_cast<Query*>(node), kVisit, wait,
                                 QTW_EXAMINE_RTES_BEFORE);
    return expression_tree_walker(node, kVisit, wait);
}

}  // namespace

// Neither list changes here: what a lock makes the server notice only marks both as outdated.
void lock_tables(const CachedPlanSource& source, LockWait wait) {
    ListCell* cell;
    foreach (cell, source.query_list) visit(static_cast<Node*>(lfirst(cell)), &wait);
    if (source.gplan == nullptr) return;
    foreach (cell, source.gplan->stmt_list) {
        ListCell* entry;
        foreach (entry, lfirst_node(PlannedStmt, cell)->rtable)
            lock(*lfirst_node(RangeTblEntry, entry), wait);
    }
}

}  // namespace pgmqtt::sink
