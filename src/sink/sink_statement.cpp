#include "sink/sink_statement.h"

extern "C" {
#include <executor/executor.h>
#include <nodes/nodeFuncs.h>
#include <nodes/params.h>
#include <parser/parse_node.h>
#include <parser/parsetree.h>
#include <utils/lsyscache.h>
#include <utils/plancache.h>
#include <utils/queryenvironment.h>
#include <utils/syscache.h>
#include <tcop/dest.h>
}

#include <algorithm>

#include "pg/guard.h"
#include "pg/privilege.h"
#include "pg/transaction.h"
#include "sink/used_columns.h"

namespace pgmqtt::sink {
namespace {

// For the planner, once and for all: a batch is neither one row nor a million.
constexpr double kExpectedRows = 1000;

char kRelationName[] = "msg";

// A role that is dropped leaves its sinks behind: regrole columns hold no dependency.
void require_owner(Oid owner) {
    if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                        errmsg("the owner of the sink (role %u) does not exist any more", owner)));
}

// Without rows yet. SPI forgets the relation with the connection, that is at SPI_finish() or at the
// abort.
EphemeralNamedRelationData* register_msg(TupleDesc description) {
    auto* relation =
        static_cast<EphemeralNamedRelationData*>(palloc0(sizeof(EphemeralNamedRelationData)));
    relation->md.name = kRelationName;
    relation->md.tupdesc = description;
    relation->md.enrtype = ENR_NAMED_TUPLESTORE;
    relation->md.enrtuples = kExpectedRows;
    int result = SPI_register_relation(relation);
    if (result != SPI_OK_REL_REGISTER)
        elog(ERROR, "could not register msg: %s", SPI_result_code_string(result));
    return relation;
}

// SELECT INTO; analysis has made a CREATE TABLE AS of it.
bool creates_table(const CachedPlanSource& source) {
    return linitial_node(Query, source.query_list)->commandType == CMD_UTILITY;
}

// Here a right that is missing is the statement's fault; at the call it would be the message's.
void require_execute(CachedPlan* plan) {
    auto* statement = linitial_node(PlannedStmt, plan->stmt_list);
    Oid procedure = castNode(CallStmt, statement->utilityStmt)->funcexpr->funcid;
    pg::require_execute(procedure, OBJECT_PROCEDURE);
}

const char* column_name(const ColumnRef& reference) {
    List* fields = reference.fields;
    if (list_length(fields) == 2 && IsA(linitial(fields), String)) {
        if (strcmp(strVal(linitial(fields)), kRelationName) != 0) return nullptr;
    } else if (list_length(fields) != 1) {
        return nullptr;
    }
    return IsA(llast(fields), String) ? strVal(llast(fields)) : nullptr;
}

}  // namespace

SinkStatement::SinkStatement(const Definition& definition, const MsgColumns& columns)
    : definition_(definition), columns_(columns), used_(static_cast<size_t>(columns.count())) {}

SinkStatement::~SinkStatement() {
    if (plan_ == nullptr) return;
    SPIPlanPtr plan = plan_;
    (void)pg::guard([&] { SPI_freeplan(plan); }).ok();
}

// The parser asks here about names it could not resolve. In the arguments of CALL, which has no
// FROM, the columns of msg are parameters; everywhere else they are columns of a relation already.
void SinkStatement::set_up_parser(ParseState* state, void* statement) {
    state->p_post_columnref_hook = resolve_column;
    state->p_ref_hook_state = statement;
}

Node* SinkStatement::resolve_column(ParseState* state, ColumnRef* reference, Node* found) {
    if (found != nullptr || state->p_expr_kind != EXPR_KIND_CALL_ARGUMENT) return nullptr;
    auto* statement = static_cast<SinkStatement*>(state->p_ref_hook_state);
    const char* name = column_name(*reference);
    int column = name == nullptr ? -1 : statement->columns_.find(name);
    if (column < 0) return nullptr;
    Oid type = statement->columns_[column].type;
    statement->used_[static_cast<size_t>(column)] = 1;
    Param* parameter = makeNode(Param);
    parameter->paramkind = PARAM_EXTERN;
    parameter->paramid = column + 1;
    parameter->paramtype = type;
    parameter->paramtypmod = -1;
    parameter->paramcollid = get_typcollation(type);
    parameter->location = reference->location;
    return reinterpret_cast<Node*>(parameter);
}

void SinkStatement::check_kind(SPIPlanPtr plan) const {
    List* sources = SPI_plan_get_plan_sources(plan);
    if (list_length(sources) != 1)
        ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR),
                        errmsg("a sink runs exactly one statement, not %d", list_length(sources))));
    auto* source = static_cast<CachedPlanSource*>(linitial(sources));
    Node* statement = source->raw_parse_tree == nullptr ? nullptr : source->raw_parse_tree->stmt;
    NodeTag tag = statement == nullptr ? T_Invalid : nodeTag(statement);
    bool reads_or_writes = tag == T_InsertStmt || tag == T_UpdateStmt || tag == T_DeleteStmt ||
                           tag == T_CallStmt ||
#if PG_VERSION_NUM >= 150000
                           tag == T_MergeStmt ||
#endif
                           (tag == T_SelectStmt && !creates_table(*source));
    if (!reads_or_writes)
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("a sink cannot run %s", tag == T_SelectStmt
                                                           ? "SELECT INTO"
                                                           : GetCommandTagName(source->commandTag)),
                        errhint("It runs INSERT, UPDATE, DELETE, MERGE, CALL or SELECT.")));
}

// The plan outlives the transaction only when everything about it is fine.
void SinkStatement::prepare() {
    SPIPrepareOptions options{};
    options.parserSetup = set_up_parser;
    options.parserSetupArg = this;
    SPIPlanPtr plan = SPI_prepare_extended(definition_.statement.c_str(), &options);
    if (plan == nullptr) elog(ERROR, "could not prepare: %s", SPI_result_code_string(SPI_result));
    check_kind(plan);
    auto* source = static_cast<CachedPlanSource*>(linitial(SPI_plan_get_plan_sources(plan)));
    is_call_ = IsA(source->raw_parse_tree->stmt, CallStmt);
    SPI_keepplan(plan);
    plan_ = plan;
    generation_ = -1;
}

// Plans again if it must be, with the locks that takes, and only then asks which columns it uses: a
// column that was added to another table may have changed what a name stands for.
void SinkStatement::plan() {
    CachedPlan* plan = SPI_plan_get_cached_plan(plan_);
    if (plan == nullptr) elog(ERROR, "could not plan the statement of a sink");
    auto* source = static_cast<CachedPlanSource*>(linitial(SPI_plan_get_plan_sources(plan_)));
    if (!is_call_ && source->generation != generation_) {
        mark_used_columns(source->query_list, kRelationName, used_);
        generation_ = source->generation;
    }
    if (is_call_) require_execute(plan);
    ReleaseCachedPlan(plan, CurrentResourceOwner);
}

// What the executor checks when it starts, before there is anything to execute.
void SinkStatement::check_rights() {
    CachedPlan* plan = SPI_plan_get_cached_plan(plan_);
    ListCell* cell;
    foreach (cell, plan->stmt_list) {
        auto* statement = lfirst_node(PlannedStmt, cell);
#if PG_VERSION_NUM >= 160000
        ExecCheckPermissions(statement->rtable, statement->permInfos, true);
#else
        ExecCheckRTPerms(statement->rtable, true);
#endif
    }
    ReleaseCachedPlan(plan, CurrentResourceOwner);
}

bool SinkStatement::may_use(MsgColumns::Kind kind) const {
    if (plan_ == nullptr || (!is_call_ && generation_ < 0)) return true;
    for (int column = 0; column < columns_.count(); ++column)
        if (columns_[column].kind == kind && used_[static_cast<size_t>(column)]) return true;
    return false;
}

void SinkStatement::check(TupleDesc description) {
    SPI_connect();
    pg::ActAs saved = pg::act_as(definition_.owner, definition_.search_path.c_str());
    register_msg(description);
    prepare();
    plan();
    check_rights();
    pg::act_as_before(saved);
    SPI_finish();
}

void SinkStatement::execute(MsgRows& rows, size_t first, size_t last) {
    require_owner(definition_.owner);
    SPI_connect();
    pg::ActAs saved = pg::act_as(definition_.owner, definition_.search_path.c_str());
    run(rows, first, last);
    pg::act_as_before(saved);
    SPI_finish();
}

// Rows that SELECT or RETURNING produce are computed and thrown away.
void SinkStatement::run(MsgRows& rows, size_t first, size_t last) {
    EphemeralNamedRelationData* msg = register_msg(rows.description());
    if (plan_ == nullptr)
        prepare();
    else
        lock_tables(*static_cast<CachedPlanSource*>(linitial(SPI_plan_get_plan_sources(plan_))),
                    lock_wait_);
    plan();
    rows.compute(used_);
    if (is_call_) {
        for (size_t row = first; row < last; ++row)
            if (!rows.absent(row)) call(rows, row);
        return;
    }
    Tuplestorestate* store = rows.tuplestore(first, last);
    msg->reldata = store;
    SPIExecuteOptions options{};
    options.dest = CreateDestReceiver(DestNone);
    int result = SPI_execute_plan_extended(plan_, &options);
    if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
    tuplestore_end(store);
}

void SinkStatement::call(const MsgRows& rows, size_t row) {
    int count = columns_.count();
    ParamListInfo parameters = makeParamList(count);
    for (int column = 0; column < count; ++column) {
        ParamExternData& parameter = parameters->params[column];
        parameter.value = rows.values(row)[column];
        parameter.isnull = rows.nulls(row)[column];
        parameter.pflags = 0;
        parameter.ptype = columns_[column].type;
    }
    SPIExecuteOptions options{};
    options.params = parameters;
    options.dest = CreateDestReceiver(DestNone);
    int result = SPI_execute_plan_extended(plan_, &options);
    if (result < 0) elog(ERROR, "could not execute: %s", SPI_result_code_string(result));
}

}  // namespace pgmqtt::sink
