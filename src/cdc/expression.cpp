#include "cdc/expression.h"

extern "C" {
#include <catalog/pg_type.h>
#include <executor/executor.h>
#include <parser/parse_coerce.h>
#include <utils/builtins.h>
#include <utils/datum.h>
#include <utils/lsyscache.h>
}

#include "cdc/call_check.h"
#include "cdc/call_watch.h"

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

// --- what an expression may be

struct Wanted {
    const char* types;  // for the message
    const char* hint;
};

Wanted wanted(Purpose purpose) {
    switch (purpose) {
        case Purpose::kTopic:
            return {"text", "Add a cast to the expression: (...)::text."};
        case Purpose::kPayload:
            return {"text, bytea, json or jsonb",
                    "Add a cast, such as (...)::text, or make JSON of it: to_jsonb(...)."};
        case Purpose::kFilter:
            return {"boolean", "The filter says which changes are published, as WHERE does."};
        case Purpose::kProperties:
            return {"jsonb", "Build the properties with jsonb_build_object(...)."};
    }
    return {};
}

bool is_text(Oid type) {
    return type == TEXTOID || IsBinaryCoercible(type, TEXTOID);
}

bool type_fits(Purpose purpose, Oid type, PayloadKind& kind) {
    switch (purpose) {
        case Purpose::kTopic:
            return is_text(type);
        case Purpose::kFilter:
            return type == BOOLOID;
        case Purpose::kProperties:
            return type == JSONBOID;
        case Purpose::kPayload:
            break;
    }
    if (type == BYTEAOID) {
        kind = PayloadKind::kBytes;
    } else if (type == JSONOID) {
        kind = PayloadKind::kJson;
    } else if (type == JSONBOID) {
        kind = PayloadKind::kJsonb;
    } else {
        kind = PayloadKind::kText;
        return is_text(type);
    }
    return true;
}

void name_the_expression(void* purpose) {
    errcontext("%s expression of a mapping", purpose_name(*static_cast<Purpose*>(purpose)));
}

// --- how it is run

// The expression itself when it needs nothing but an expression evaluator: no table, no sub-select,
// no aggregate, one row.
Expr* simple_expression(CachedPlan* cached) {
    if (list_length(cached->stmt_list) != 1) return nullptr;
    auto* statement = linitial_node(PlannedStmt, cached->stmt_list);
    if (statement->commandType != CMD_SELECT || statement->subplans != NIL) return nullptr;
    Plan* plan = statement->planTree;
    if (!IsA(plan, Result) || plan->lefttree != nullptr || plan->righttree != nullptr ||
        plan->initPlan != NIL || plan->qual != NIL ||
        reinterpret_cast<Result*>(plan)->resconstantqual != nullptr ||
        list_length(plan->targetlist) != 1) {
        return nullptr;
    }
    return linitial_node(TargetEntry, plan->targetlist)->expr;
}

Datum evaluate_with_spi(SPIPlanPtr plan, ParamListInfo values, bool* is_null) {
    int result = SPI_execute_plan_with_paramlist(plan, values, true, 2);
    if (result < 0) elog(ERROR, "could not evaluate: %s", SPI_result_code_string(result));
    if (SPI_processed > 1) {
        ereport(ERROR, (errcode(ERRCODE_CARDINALITY_VIOLATION),
                        errmsg("expression returned more than one row")));
    }
    *is_null = true;
    Datum value{0};
    if (SPI_processed == 1) {
        TupleDesc columns = SPI_tuptable->tupdesc;
        value = SPI_getbinval(SPI_tuptable->vals[0], columns, 1, is_null);
        Form_pg_attribute column = TupleDescAttr(columns, 0);
        if (!*is_null) value = datumCopy(value, column->attbyval, column->attlen);
    }
    SPI_freetuptable(SPI_tuptable);
    return value;
}

}  // namespace

const char* purpose_name(Purpose purpose) {
    switch (purpose) {
        case Purpose::kTopic:
            return "topic";
        case Purpose::kPayload:
            return "payload";
        case Purpose::kFilter:
            return "filter";
        case Purpose::kProperties:
            return "properties";
    }
    return "";
}

void Expression::prepare(Purpose expression_purpose, const char* text, Scope* scope) {
    purpose = expression_purpose;
    ErrorContextCallback callback = {error_context_stack, name_the_expression, &purpose};
    error_context_stack = &callback;

    unsigned used_before = scope->used;
    scope->used = 0;
    SPIPrepareOptions options = {};
    options.parserSetup = set_up_parser;
    options.parserSetupArg = scope;
    options.parseMode = RAW_PARSE_PLPGSQL_EXPR;
    options.cursorOptions = CURSOR_OPT_GENERIC_PLAN;
    CallWatch watch = {};
    watch.begin_parsing(scope->calls);
    SPIPlanPtr prepared = SPI_prepare_extended(text, &options);
    watch.end();
    if (prepared == nullptr) {
        elog(ERROR, "could not parse: %s", SPI_result_code_string(SPI_result));
    }
    uses = scope->used;
    scope->used |= used_before;

    plan = prepared;
    TupleDesc columns = source()->resultDesc;
    if (columns == nullptr || columns->natts != 1) {
        ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR),
                        errmsg("%s must be one value, not %d", purpose_name(purpose),
                               columns == nullptr ? 0 : columns->natts)));
    }
    Oid type = TupleDescAttr(columns, 0)->atttypid;
    kind = PayloadKind::kText;
    if (!type_fits(purpose, getBaseType(type), kind)) {
        ereport(ERROR,
                (errcode(ERRCODE_DATATYPE_MISMATCH),
                 errmsg("%s must be of type %s, not %s", purpose_name(purpose),
                        wanted(purpose).types, format_type_be(type)),
                 errdetail("The expression is: %s", text), errhint("%s", wanted(purpose).hint)));
    }
    checked = type_changes();
    check_calls(source(), scope->calls);
    names = scope;
    kept = false;
    error_context_stack = callback.previous;
}

void Expression::keep() {
    SPI_keepplan(plan);
    kept = true;
}

void Expression::release() {
    if (kept) SPI_freeplan(plan);
    plan = nullptr;
    kept = false;
}

CachedPlanSource* Expression::source() const {
    return static_cast<CachedPlanSource*>(linitial(SPI_plan_get_plan_sources(plan)));
}

// What it names may mean something else than when it was parsed. Before it is planned: that already
// calls functions whose arguments are constant.
void Expression::check_again() {
    checked = type_changes();
    CallWatch watch = {};
    watch.begin_parsing(names->calls);
    CachedPlanGetTargetList(source(), nullptr);  // parses again where something has changed
    watch.end();
    check_calls(source(), names->calls);
}

// The plan is not held on to: a copy of the expression may outlive this subtransaction.
void Expression::begin(ParamListInfo values) {
    state = nullptr;
    context = nullptr;
    check_again();
    CallWatch watch = {};
    watch.begin_evaluating(names->calls, names->row_type, source(), checked);
    CachedPlan* cached = SPI_plan_get_cached_plan(plan);
    watch.end();
    if (cached == nullptr) return;
    // SPI gives the reference to an owner only for plans that outlive it.
    ResourceOwner owner = kept ? CurrentResourceOwner : nullptr;
    Expr* simple = simple_expression(cached);
    if (simple != nullptr) simple = static_cast<Expr*>(copyObjectImpl(simple));
    ReleaseCachedPlan(cached, owner);
    if (simple == nullptr) return;
    context = CreateStandaloneExprContext();
    context->ecxt_param_list_info = values;
    state = ExecInitExprWithParams(simple, values);
}

void Expression::end() {
    if (context != nullptr) FreeExprContext(context, true);
    forget();
}

Datum Expression::evaluate(ParamListInfo values, bool* is_null) {
    if (state == nullptr && !source()->is_valid) check_again();
    CallWatch watch = {};
    watch.begin_evaluating(names->calls, names->row_type, source(), checked);
    Datum value = state == nullptr ? evaluate_with_spi(plan, values, is_null)
                                   : ExecEvalExprSwitchContext(state, context, is_null);
    watch.end();
    return value;
}

}  // namespace pgmqtt::cdc
