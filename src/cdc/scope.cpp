#include "cdc/scope.h"

extern "C" {
#include <access/htup_details.h>
#include <access/relation.h>
#include <catalog/pg_type.h>
#include <lib/stringinfo.h>
#include <nodes/makefuncs.h>
#include <parser/parse_node.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
#include <utils/rel.h>
}

#include <cstring>

// Everything here runs inside the server's parser: plain values only, an ERROR passes through.
namespace pgmqtt::cdc {

namespace {

struct NameType {
    const char* name;
    Oid type;  // InvalidOid: the row type of the source
};

constexpr NameType kNames[kNameCount] = {
    {"new", InvalidOid},      {"old", InvalidOid},        {"op", TEXTOID},
    {"lsn", PG_LSNOID},       {"xid", INT8OID},           {"commit_ts", TIMESTAMPTZOID},
    {"absent", TEXTARRAYOID}, {"partition", REGCLASSOID}, {"seq", INT8OID},
};

Oid type_of(const Scope& scope, int name) {
    return OidIsValid(kNames[name].type) ? kNames[name].type : scope.row_type;
}

Node* make_param(Scope& scope, int name, int location) {
    scope.used |= 1U << name;
    Param* param = makeNode(Param);
    param->paramkind = PARAM_EXTERN;
    param->paramid = name + 1;
    param->paramtype = type_of(scope, name);
    param->paramtypmod = -1;
    param->paramcollid = get_typcollation(param->paramtype);
    param->location = location;
    return reinterpret_cast<Node*>(param);
}

int find_name(const char* word) {
    for (int i = 0; i < kNameCount; ++i) {
        if (std::strcmp(kNames[i].name, word) == 0) return i;
    }
    return -1;
}

Node* make_field(Scope& scope, int name, const char* column, ParseState* parser, int location) {
    AttrNumber number = get_attnum(scope.relation, column);
    if (number <= 0) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
                        errmsg("column %s.%s does not exist", kNames[name].name, column),
                        errhint("Columns of %s: %s.", get_rel_name(scope.relation),
                                column_list(scope.relation)),
                        parser_errposition(parser, location)));
    }
    FieldSelect* field = makeNode(FieldSelect);
    field->arg = reinterpret_cast<Expr*>(make_param(scope, name, location));
    field->fieldnum = number;
    get_atttypetypmodcoll(scope.relation, number, &field->resulttype, &field->resulttypmod,
                          &field->resultcollid);
    return reinterpret_cast<Node*>(field);
}

// A bare column name is the mistake that everybody makes once.
void hint_at_row(const Scope& scope, ParseState* parser, const char* word, int location) {
    if (get_attnum(scope.relation, word) <= 0) {
        ereport(ERROR,
                (errcode(ERRCODE_UNDEFINED_COLUMN), errmsg("\"%s\" does not exist here", word),
                 errhint("In scope: new and old (rows of %s), op, lsn, xid, commit_ts, absent, "
                         "partition, seq.",
                         get_rel_name(scope.relation)),
                 parser_errposition(parser, location)));
    }
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN), errmsg("column \"%s\" does not exist", word),
                    errhint("The changed row is in scope as new and old: write new.%s or old.%s.",
                            quote_identifier(word), quote_identifier(word)),
                    parser_errposition(parser, location)));
}

// The names of a FROM list come first: `found` is what the parser made of the reference.
Node* resolve_column(ParseState* parser, ColumnRef* reference, Node* found) {
    auto& scope = *static_cast<Scope*>(parser->p_ref_hook_state);
    if (found != nullptr) return nullptr;
    auto* first = static_cast<Node*>(linitial(reference->fields));
    int count = list_length(reference->fields);
    if (!IsA(first, String)) return nullptr;
    const char* word = strVal(first);
    int name = find_name(word);
    if (name < 0) {
        if (count == 1) hint_at_row(scope, parser, word, reference->location);
        return nullptr;
    }
    if (count == 1) return make_param(scope, name, reference->location);
    if (count > 2 || (name != kNew && name != kOld)) return nullptr;
    auto* second = static_cast<Node*>(lsecond(reference->fields));
    if (IsA(second, A_Star)) return make_param(scope, name, reference->location);
    return make_field(scope, name, strVal(second), parser, reference->location);
}

}  // namespace

void set_up_parser(ParseState* parser, void* scope) {
    parser->p_post_columnref_hook = resolve_column;
    parser->p_ref_hook_state = scope;
}

ParamListInfo make_values(const Scope& scope) {
    ParamListInfo values = makeParamList(kNameCount);
    for (int i = 0; i < kNameCount; ++i) {
        values->params[i].value = Datum{0};
        values->params[i].isnull = true;
        values->params[i].pflags = 0;
        values->params[i].ptype = type_of(scope, i);
    }
    return values;
}

const char* column_list(Oid relation) {
    StringInfoData list;
    initStringInfo(&list);
    Relation opened = relation_open(relation, AccessShareLock);
    TupleDesc columns = RelationGetDescr(opened);
    for (int i = 0; i < columns->natts; ++i) {
        Form_pg_attribute column = TupleDescAttr(columns, i);
        if (column->attisdropped) continue;
        appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "",
                         quote_identifier(NameStr(column->attname)));
    }
    relation_close(opened, NoLock);
    return list.data;
}

}  // namespace pgmqtt::cdc
