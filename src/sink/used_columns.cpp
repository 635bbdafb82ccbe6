#include "sink/used_columns.h"

extern "C" {
#include <nodes/nodeFuncs.h>
#include <parser/parsetree.h>
}

#include <algorithm>

namespace pgmqtt::sink {
namespace {

struct Search {
    const char* relation;
    ColumnSet* used;
    List* queries;  // those around the current node, innermost first
};

bool visit(Node* node, void* search);

// Before PostgreSQL 16 the server declares walkers without their parameters.
#if PG_VERSION_NUM >= 160000
constexpr auto kVisit = visit;
#else
const auto kVisit = reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(visit));
#endif

void mark(const RangeTblEntry& entry, AttrNumber column, Search& search) {
    if (strcmp(entry.enrname, search.relation) != 0) return;
    if (column <= 0)  // the whole row
        std::fill(search.used->begin(), search.used->end(), char{1});
    else if (static_cast<size_t>(column) <= search.used->size())
        (*search.used)[static_cast<size_t>(column) - 1] = 1;
}

// A column of a join stands for one of either side; the whole row of a join for all of them.
void visit_join(const RangeTblEntry& entry, AttrNumber column, List* queries, Search& search) {
    List* saved = search.queries;
    search.queries = queries;
    if (column <= 0)
        expression_tree_walker(reinterpret_cast<Node*>(entry.joinaliasvars), kVisit, &search);
    else
        visit(static_cast<Node*>(list_nth(entry.joinaliasvars, column - 1)), &search);
    search.queries = saved;
}

void visit_var(const Var& var, Search& search) {
    int level = static_cast<int>(var.varlevelsup);
    if (level >= list_length(search.queries)) return;
    List* queries = list_copy_tail(search.queries, level);
    auto* query = static_cast<Query*>(linitial(queries));
    if (static_cast<int>(var.varno) > list_length(query->rtable)) return;
    RangeTblEntry* entry = rt_fetch(var.varno, query->rtable);
    if (entry->rtekind == RTE_NAMEDTUPLESTORE)
        mark(*entry, var.varattno, search);
    else if (entry->rtekind == RTE_JOIN)
        visit_join(*entry, var.varattno, queries, search);
}

bool visit(Node* node, void* argument) {
    if (node == nullptr) return false;
    auto& search = *static_cast<Search*>(argument);
    if (IsA(node, Var)) {
        visit_var(*reinterpret_cast<Var*>(node), search);
        return false;
    }
    if (!IsA(node, Query)) return expression_tree_walker(node, kVisit, argument);
    search.queries = lcons(node, search.queries);
    // Joins list every column of both sides; those that are used are met where they are used.
    query_tree_walker(reinterpret_cast<Query*>(node), kVisit, argument, QTW_IGNORE_JOINALIASES);
    search.queries = list_delete_first(search.queries);
    return false;
}

}  // namespace

void mark_used_columns(List* queries, const char* relation, ColumnSet& used) {
    std::fill(used.begin(), used.end(), char{0});
    Search search{relation, &used, NIL};
    ListCell* cell;
    foreach (cell, queries) visit(static_cast<Node*>(lfirst(cell)), &search);
}

}  // namespace pgmqtt::sink
