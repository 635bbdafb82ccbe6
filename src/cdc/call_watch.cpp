#include "cdc/call_watch.h"

extern "C" {
#include <fmgr.h>
#include <optimizer/planner.h>
#include <utils/inval.h>
#include <utils/syscache.h>
}

#include "cdc/call_check.h"

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

uint64 changes = 0;
uint64 table_changes = 0;  // indexes, statistics, partitions
needs_fmgr_hook_type previous_lookup_hook = nullptr;
fmgr_hook_type previous_call_hook = nullptr;
planner_hook_type previous_planner_hook = nullptr;

void mark(void*) {}

CallWatch* innermost_watch() {
    for (ErrorContextCallback* one = error_context_stack; one != nullptr; one = one->previous) {
        if (one->callback == mark) return static_cast<CallWatch*>(one->arg);
    }
    return nullptr;
}

void look_at(Oid function) {
    CallWatch* watch = innermost_watch();
    if (watch != nullptr && watch->user == GetUserId()) watch->look_at(function);
}

bool at_lookup(Oid function) {
    look_at(function);
    return previous_lookup_hook != nullptr && previous_lookup_hook(function);
}

// A function with settings of its own is not looked up as others are.
void at_call(FmgrHookEventType event, FmgrInfo* function, Datum* argument) {
    if (event == FHET_START) look_at(function->fn_oid);
    if (previous_call_hook != nullptr) previous_call_hook(event, function, argument);
}

PlannedStmt* plan(Query* query, const char* text, int options, ParamListInfo values) {
    return previous_planner_hook != nullptr ? previous_planner_hook(query, text, options, values)
                                            : standard_planner(query, text, options, values);
}

// An expression's own query; functions that it calls plan theirs, which are their own affair.
PlannedStmt* at_planning(Query* query, const char* text, int options, ParamListInfo values) {
    CallWatch* evaluating = innermost_watch();
    if (evaluating == nullptr || !evaluating->is_of(text))
        return plan(query, text, options, values);
    CallWatch watch = {};
    watch.begin_planning(*evaluating);
    PlannedStmt* statement = plan(query, text, options, values);
    watch.end();
    return statement;
}

void install() {
    static bool installed = false;
    if (installed) return;
    installed = true;
    auto changed = [](Datum, int, uint32) { ++changes; };
    CacheRegisterSyscacheCallback(CASTSOURCETARGET, changed, Datum{0});
    CacheRegisterSyscacheCallback(CONSTROID, changed, Datum{0});
    CacheRegisterRelcacheCallback([](Datum, Oid) { ++table_changes; }, Datum{0});
    previous_planner_hook = planner_hook;
    planner_hook = at_planning;
    previous_lookup_hook = needs_fmgr_hook;
    needs_fmgr_hook = at_lookup;
    previous_call_hook = fmgr_hook;
    fmgr_hook = at_call;
}

}  // namespace

uint64 type_changes() {
    install();
    return changes;
}

void CallWatch::begin() {
    install();
    user = GetUserId();
    callback = {error_context_stack, mark, this};
    error_context_stack = &callback;
}

void CallWatch::begin_parsing(Calls& allowed) {
    calls = &allowed;
    checked = nullptr;
    begin();
}

void CallWatch::begin_evaluating(Calls& allowed, Oid row, CachedPlanSource* plan_source,
                                 uint64& checked_at) {
    calls = &allowed;
    row_type = row;
    source = plan_source;
    checked = &checked_at;
    begin();
}

void CallWatch::begin_planning(const CallWatch& evaluating) {
    *this = evaluating;
    planning = true;
    planned_at = changes + table_changes;
    check_calls(source, *calls);
    begin();
}

void CallWatch::look_while_planning() {
    uint64 now = changes + table_changes;
    if (planned_at == now) return;
    check_calls(source, *calls);
    check_type_calls(row_type, *calls);
    planned_at = now;  // not if a function that is being run catches the error
}

void CallWatch::look_at(Oid function) {
    if (planning) return look_while_planning();
    if (checked == nullptr) return calls->check_implied(function);
    if (*checked == changes) return;
    uint64 now = changes;
    check_type_calls(row_type, *calls);
    if (source != nullptr) check_type_calls(source, *calls);
    *checked = now;
}

}  // namespace pgmqtt::cdc
