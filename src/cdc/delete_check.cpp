#include "cdc/delete_check.h"

extern "C" {
#include <catalog/pg_class.h>
#include <nodes/nodeFuncs.h>
#include <utils/lsyscache.h>
}

#include "cdc/source.h"

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

constexpr const char* kHint =
    "Add a primary key, or ALTER TABLE ... REPLICA IDENTITY FULL, or leave out delete: operations "
    "=> "
    "'{insert,update}'.";

// --- the columns of old that an expression names

struct OldColumns {
    Bitmapset* numbers;
};

bool find_old_columns(Node* node, void* context);

// The type of a tree walker's callback before and after it got one.
#if PG_VERSION_NUM >= 160000
constexpr auto* kFindOldColumns = find_old_columns;
#else
bool (*const kFindOldColumns)() =
    reinterpret_cast<bool (*)()>(reinterpret_cast<void*>(find_old_columns));
#endif

bool find_old_columns(Node* node, void* context) {
    if (node == nullptr) return false;
    if (IsA(node, FieldSelect)) {
        auto* field = reinterpret_cast<FieldSelect*>(node);
        auto* row = reinterpret_cast<Param*>(field->arg);
        if (IsA(row, Param) && row->paramkind == PARAM_EXTERN && row->paramid == kOld + 1) {
            auto* found = static_cast<OldColumns*>(context);
            found->numbers = bms_add_member(found->numbers, field->fieldnum);
        }
    }
    if (IsA(node, Query)) {
        return query_tree_walker(reinterpret_cast<Query*>(node), kFindOldColumns, context, 0);
    }
    return expression_tree_walker(node, kFindOldColumns, context);
}

Bitmapset* old_columns(const Expression& expression) {
    OldColumns found = {};
    auto* source =
        static_cast<CachedPlanSource*>(linitial(SPI_plan_get_plan_sources(expression.plan)));
    ListCell* cell;
    foreach (cell, source->query_list) {
        find_old_columns(static_cast<Node*>(lfirst(cell)), &found);
    }
    return found.numbers;
}

// --- tables that hold rows

bool holds_rows(Oid relation, Oid source, int count) {
    return get_rel_relkind(relation) == RELKIND_RELATION || (relation == source && count == 1);
}

// A table that says nothing of a deleted row; invalid: there is none.
Oid without_old_row(Oid source, const Oids& tables) {
    for (int i = 0; i < tables.count; ++i) {
        Oid table = tables.items[i];
        if (holds_rows(table, source, tables.count) && old_row_of(table) == OldRow::kNothing) {
            return table;
        }
    }
    return InvalidOid;
}

void refuse_without_old_row(const DeletePremise& premise, Oid table,
                            const MappingExpressions& expressions) {
    unsigned uses = expressions.topic.uses | expressions.filter.uses | expressions.properties.uses;
    if (!premise.default_payload) uses |= expressions.payload.uses;
    bool needs_old = (uses >> kOld & 1) != 0 || premise.retain;
    bool says_row =
        needs_old || premise.default_payload || (expressions.topic.uses >> kNew & 1) != 0;
    if (!says_row) return;
    ereport(
        needs_old ? ERROR : WARNING,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("a DELETE on table \"%s\" does not say which row it removed", get_rel_name(table)),
         errdetail("The table has no replica identity, so there is no old row."),
         errhint("%s", kHint)));
}

// With retain a topic that cannot be told is a message that stays for ever.
void check_topic_columns(const DeletePremise& premise, const Oids& tables,
                         const MappingExpressions& expressions) {
    Bitmapset* used = old_columns(expressions.topic);
    for (int number = -1; (number = bms_next_member(used, number)) >= 0;) {
        const char* column = get_attname(premise.source, static_cast<AttrNumber>(number), false);
        for (int i = 0; i < tables.count; ++i) {
            Oid table = tables.items[i];
            if (!holds_rows(table, premise.source, tables.count) || old_row_has(table, column)) {
                continue;
            }
            ereport(premise.retain ? ERROR : WARNING,
                    (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                     errmsg("a DELETE on table \"%s\" does not tell column \"%s\" of the row",
                            get_rel_name(table), column),
                     errdetail("The topic names old.%s, and the table's replica identity does not "
                               "include that column.",
                               column),
                     errhint("Make the topic of key columns, or ALTER TABLE ... REPLICA IDENTITY "
                             "FULL, or leave out delete: operations => '{insert,update}'.")));
            break;
        }
    }
}

}  // namespace

void check_delete(const DeletePremise& premise, MappingExpressions& expressions) {
    Oids tables = with_partitions(premise.source);
    Oid silent = without_old_row(premise.source, tables);
    if (OidIsValid(silent)) return refuse_without_old_row(premise, silent, expressions);
    check_topic_columns(premise, tables, expressions);
    unsigned topic = expressions.topic.uses;
    if ((topic >> kNew & 1) == 0 || (topic >> kOld & 1) != 0) return;
    ereport(WARNING,
            (errmsg("the topic of mapping \"%s\" may be NULL on DELETE", premise.mapping),
             errdetail("It names new, which a DELETE does not have."),
             errhint("Write coalesce(new.column, old.column), or leave out delete: operations "
                     "=> '{insert,update}'.")));
}

}  // namespace pgmqtt::cdc
