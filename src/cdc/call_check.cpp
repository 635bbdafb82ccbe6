#include "cdc/call_check.h"

extern "C" {
#include <access/genam.h>
#include <access/htup_details.h>
#include <access/table.h>
#include <access/transam.h>
#include <catalog/pg_constraint.h>
#include <catalog/pg_type.h>
#include <executor/executor.h>
#include <miscadmin.h>
#include <nodes/nodeFuncs.h>
#include <nodes/parsenodes.h>
#include <parser/parse_coerce.h>
#include <utils/builtins.h>
#include <utils/fmgroids.h>
#include <utils/lsyscache.h>
#include <utils/rel.h>
#include <utils/syscache.h>
#include <utils/typcache.h>
}

#include <initializer_list>

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

struct Walk {
    Calls* calls;
    List* seen;    // of Oid: types that were looked at
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

// The type of a tree walker's callback before and after it got one.
#if PG_VERSION_NUM >= 160000
constexpr auto* kCheckNode = check_node;
void check_tables(Query* query) {
    ExecCheckPermissions(query->rtable, query->rteperminfos, true);
}
#else
bool (*const kCheckNode)() = reinterpret_cast<bool (*)()>(reinterpret_cast<void*>(check_node));
void check_tables(Query* query) {
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

// From the catalog: the type cache would plan the expressions, which calls functions already.
void check_domain(Oid domain, Walk& walk) {
    Relation constraints = table_open(ConstraintRelationId, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_constraint_contypid, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(domain));
    SysScanDesc scan =
        systable_beginscan(constraints, ConstraintTypidIndexId, true, nullptr, 1, &key);
    List* checks = NIL;
    HeapTuple tuple;
    while (HeapTupleIsValid(tuple = systable_getnext(scan))) {
        bool is_null;
        Datum check =
            heap_getattr(tuple, Anum_pg_constraint_conbin, RelationGetDescr(constraints), &is_null);
        if (!is_null) checks = lappend(checks, stringToNode(TextDatumGetCString(check)));
    }
    systable_endscan(scan);
    table_close(constraints, AccessShareLock);
    bool outer = walk.implied;
    walk.implied = true;
    ListCell* cell;
    foreach (cell, checks) check_node(static_cast<Node*>(lfirst(cell)), &walk);
    walk.implied = outer;
}

// One step: that may be a domain again.
Oid based_on(Oid domain) {
    HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(domain));
    if (!HeapTupleIsValid(tuple)) elog(ERROR, "cache lookup failed for type %u", domain);
    Oid base = reinterpret_cast<Form_pg_type>(GETSTRUCT(tuple))->typbasetype;
    ReleaseSysCache(tuple);
    return base;
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
    if (has_type(node)) check_type(exprType(node), walk);
    if (IsA(node, Query)) {
        auto* query = reinterpret_cast<Query*>(node);
        if (!walk.implied) check_tables(query);
        check_row_sources(query, walk);
        return query_tree_walker(query, kCheckNode, context, 0);
    }
    return expression_tree_walker(node, kCheckNode, context);
}

void check_queries(CachedPlanSource* source, Walk walk) {
    ListCell* cell;
    foreach (cell, source->query_list) check_node(static_cast<Node*>(lfirst(cell)), &walk);
    list_free(walk.seen);
}

}  // namespace

void check_calls(CachedPlanSource* source, Calls& calls) {
    check_queries(source, {&calls, NIL, false});
}

void check_type_calls(CachedPlanSource* source, Calls& calls) {
    check_queries(source, {&calls, NIL, true});
}

void check_type_calls(Oid type, Calls& calls) {
    Walk walk = {&calls, NIL, false};
    check_type(type, walk);
    list_free(walk.seen);
}

}  // namespace pgmqtt::cdc
