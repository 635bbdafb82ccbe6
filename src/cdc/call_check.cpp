#include "cdc/call_check.h"

extern "C" {
#include <access/htup_details.h>
#include <access/transam.h>
#include <catalog/pg_class.h>
#include <catalog/pg_inherits.h>
#include <catalog/pg_range.h>
#include <catalog/pg_type.h>
#include <executor/executor.h>
#include <miscadmin.h>
#include <nodes/nodeFuncs.h>
#include <nodes/parsenodes.h>
#include <parser/parse_coerce.h>
#include <utils/acl.h>
#include <utils/lsyscache.h>
#include <utils/syscache.h>
#include <utils/typcache.h>
}

#include <initializer_list>

#include "cdc/catalog_expressions.h"

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

struct Walk {
    Calls* calls;
    List* seen;    // of Oid: types that were looked at
    List* tables;  // of Oid: the same of tables
    bool implied;  // as in a CHECK of a domain: nobody is asked for privileges
};

bool check_function(Oid function, void* context) {
    auto& walk = *static_cast<Walk*>(context);
    if (walk.implied) {
        walk.calls->check_implied(function);
    } else {
        walk.calls->check(function);
    }
    return false;
}

bool check_node(Node* node, void* context);

void check_implied(List* trees, Walk& walk) {
    bool outer = walk.implied;
    walk.implied = true;
    ListCell* cell;
    foreach (cell, trees) check_node(static_cast<Node*>(lfirst(cell)), &walk);
    walk.implied = outer;
}

// The type of a tree walker's callback before and after it got one.
#if PG_VERSION_NUM >= 160000
constexpr auto* kCheckNode = check_node;
void check_privileges(Query* query) {
    ExecCheckPermissions(query->rtable, query->rteperminfos, true);
}
#else
bool (*const kCheckNode)() = reinterpret_cast<bool (*)()>(reinterpret_cast<void*>(check_node));
void check_privileges(Query* query) {
    ExecCheckRTPerms(query->rtable, true);
}
#endif

// --- types

void check_type(Oid type, Walk& walk);

// As the server's json_categorize_type() looks for one; jsonb as well, should it once do.
void check_casts(Oid type, Walk& walk) {
    for (Oid target : {JSONOID, JSONBOID}) {
        Oid function = InvalidOid;
        CoercionPathType path = find_coercion_pathway(target, type, COERCION_EXPLICIT, &function);
        if (path == COERCION_PATH_FUNC && OidIsValid(function)) walk.calls->check_implied(function);
    }
}

void check_domain(Oid domain, Walk& walk) {
    check_implied(domain_checks(domain), walk);
}

// One step: that may be a domain again.
Oid based_on(Oid domain) {
    HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(domain));
    if (!HeapTupleIsValid(tuple)) elog(ERROR, "cache lookup failed for type %u", domain);
    Oid base = reinterpret_cast<Form_pg_type>(GETSTRUCT(tuple))->typbasetype;
    ReleaseSysCache(tuple);
    return base;
}

struct RangeFunctions {
    Oid canonical;  // of each value that is made
    Oid difference;
};

RangeFunctions range_functions(Oid type) {
    if (type < FirstNormalObjectId) return {};
    Oid range = type_is_multirange(type) ? get_multirange_range(type) : type;
    HeapTuple tuple = SearchSysCache1(RANGETYPE, ObjectIdGetDatum(range));
    if (!HeapTupleIsValid(tuple)) return {};
    auto* form = reinterpret_cast<Form_pg_range>(GETSTRUCT(tuple));
    RangeFunctions functions = {form->rngcanonical, form->rngsubdiff};
    ReleaseSysCache(tuple);
    return functions;
}

void check_range(Oid range, Walk& walk) {
    Oid canonical = range_functions(range).canonical;
    if (OidIsValid(canonical)) walk.calls->check_implied(canonical);
}

void check_columns(Oid row_type, Walk& walk) {
    TupleDesc columns = lookup_rowtype_tupdesc(row_type, -1);
    for (int i = 0; i < columns->natts; ++i) {
        Form_pg_attribute column = TupleDescAttr(columns, i);
        if (!column->attisdropped) check_type(column->atttypid, walk);
    }
    ReleaseTupleDesc(columns);
}

void check_type(Oid type, Walk& walk) {
    if (type < FirstNormalObjectId || list_member_oid(walk.seen, type)) return;
    walk.seen = lappend_oid(walk.seen, type);
    check_stack_depth();
    check_casts(type, walk);
    Oid element = get_element_type(type);
    if (OidIsValid(element)) return check_type(element, walk);
    switch (get_typtype(type)) {
        case TYPTYPE_DOMAIN:
            check_domain(type, walk);
            return check_type(based_on(type), walk);
        case TYPTYPE_COMPOSITE:
            return check_columns(type, walk);
        case TYPTYPE_RANGE:
            check_range(type, walk);
            return check_type(get_range_subtype(type), walk);
        case TYPTYPE_MULTIRANGE:
            return check_type(get_multirange_range(type), walk);
        default:
            return;
    }
}

void check_types(List* types, Walk& walk) {
    ListCell* cell;
    foreach (cell, types) check_type(lfirst_oid(cell), walk);
}

// --- tables

// Who owns a table has its expressions evaluated by the planner of whoever reads it, as far as
// their arguments are constant. One who may act as the current user anyway gains nothing by that.
void check_table(Oid table, Walk& walk) {
    if (table < FirstNormalObjectId || list_member_oid(walk.tables, table)) return;
    walk.tables = lappend_oid(walk.tables, table);
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
    if (!HeapTupleIsValid(tuple)) return;  // gone: so is what was attached to it
    auto* form = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple));
    List* trees = has_privs_of_role(form->relowner, GetUserId()) ? NIL : planned_expressions(form);
    ReleaseSysCache(tuple);
    check_implied(trees, walk);
}

void check_tables(Query* query, Walk& walk) {
    ListCell* cell;
    foreach (cell, query->rtable) {
        auto* entry = lfirst_node(RangeTblEntry, cell);
        if (entry->rtekind != RTE_RELATION || entry->relkind == RELKIND_VIEW) continue;
        if (!entry->inh) {
            check_table(entry->relid, walk);
            continue;
        }
        ListCell* table;
        foreach (table, find_all_inheritors(entry->relid, NoLock, nullptr)) {
            check_table(lfirst_oid(table), walk);
        }
    }
}

// --- nodes

bool has_type(Node* node) {
    switch (nodeTag(node)) {
        case T_Var:
        case T_Const:
        case T_Param:
        case T_Aggref:
        case T_WindowFunc:
        case T_SubscriptingRef:
        case T_FuncExpr:
        case T_OpExpr:
        case T_NullIfExpr:
        case T_FieldSelect:
        case T_FieldStore:
        case T_RelabelType:
        case T_CoerceViaIO:
        case T_ArrayCoerceExpr:
        case T_ConvertRowtypeExpr:
        case T_CaseExpr:
        case T_CaseTestExpr:
        case T_ArrayExpr:
        case T_RowExpr:
        case T_CoalesceExpr:
        case T_MinMaxExpr:
        case T_CoerceToDomain:
        case T_CoerceToDomainValue:
            return true;
        default:
            return false;
    }
}

// The planner estimates with a range's subtype_diff what a comparison selects.
void check_node_type(Oid type, Walk& walk) {
    check_type(type, walk);
    RangeFunctions range = range_functions(type);
    if (OidIsValid(range.difference)) walk.calls->check_implied(range.difference);
}

// jsonb_to_record() AS (...), XMLTABLE: values are made of types that no expression has.
void check_row_sources(Query* query, Walk& walk) {
    ListCell* cell;
    foreach (cell, query->rtable) {
        auto* entry = lfirst_node(RangeTblEntry, cell);
        if (entry->rtekind == RTE_TABLEFUNC) check_types(entry->tablefunc->coltypes, walk);
        ListCell* function;
        foreach (function, entry->functions) {
            check_types(lfirst_node(RangeTblFunction, function)->funccoltypes, walk);
        }
    }
}

// Without evaluating anything: also what the executor would refuse for want of a privilege.
bool check_node(Node* node, void* context) {
    if (node == nullptr) return false;
    auto& walk = *static_cast<Walk*>(context);
    check_functions_in_node(node, check_function, context);
    if (has_type(node)) check_node_type(exprType(node), walk);
    if (IsA(node, Query)) {
        auto* query = reinterpret_cast<Query*>(node);
        if (!walk.implied) check_privileges(query);
        check_tables(query, walk);
        check_row_sources(query, walk);
        return query_tree_walker(query, kCheckNode, context, 0);
    }
    return expression_tree_walker(node, kCheckNode, context);
}

void check_queries(CachedPlanSource* source, Walk walk) {
    ListCell* cell;
    foreach (cell, source->query_list) check_node(static_cast<Node*>(lfirst(cell)), &walk);
    list_free(walk.seen);
    list_free(walk.tables);
}

}  // namespace

void check_calls(CachedPlanSource* source, Calls& calls) {
    check_queries(source, {&calls, NIL, NIL, false});
}

void check_type_calls(CachedPlanSource* source, Calls& calls) {
    check_queries(source, {&calls, NIL, NIL, true});
}

void check_type_calls(Oid type, Calls& calls) {
    Walk walk = {&calls, NIL, NIL, false};
    check_type(type, walk);
    list_free(walk.seen);
}

}  // namespace pgmqtt::cdc
