#include "sink/batch_run.h"

extern "C" {
#include <utils/plancache.h>
}

#include <algorithm>
#include <utility>

#include "pg/transaction.h"
#include "sink/verdict.h"

namespace pgmqtt::sink {

void BatchRun::run_whole() {
    rows_.begin();
    statement_.execute(rows_, 0, messages_.size());
    outcome_.done = messages_.size();
    report_unfit();
}

void BatchRun::run_bisected() {
    rows_.begin();
    store(0, messages_.size());
    report_unfit();
}

// Stores what can be stored of [first, last), left half before right half, so rows keep the order
// of arrival. False: the rest of the batch must wait.
bool BatchRun::store(size_t first, size_t last) {
    if (first == last) return true;
    if (attempt(first, last)) {
        statement_works_ = true;
        outcome_.done = last;
        return true;
    }
    if (is_transient(error_.sqlstate)) {
        hold(HeldBy::kWeather);
        return false;
    }
    if (may_be_the_statements(error_.sqlstate) && !plans_are_fresh_) {
        forget_plans();
        return store(first, last);
    }
    if (statement_is_at_fault()) {
        hold(is_transient(error_.sqlstate) ? HeldBy::kWeather : HeldBy::kStatement);
        return false;
    }
    if (last - first == 1) return settle(first);
    size_t middle = first + (last - first) / 2;
    return store(first, middle) && store(middle, last);
}

// A message that fails alone.
bool BatchRun::settle(size_t index) {
    if (hold_failures_ && (index > 0 || hold_first_)) {
        hold(HeldBy::kMessage);
        return false;
    }
    outcome_.failures.push_back({index, error_});
    outcome_.done = index + 1;
    return true;
}

bool BatchRun::attempt(size_t first, size_t last) {
    pg::Status status = pg::subtransaction([&] { statement_.execute(rows_, first, last); });
    if (status) return true;
    error_ = std::move(status.error());
    return false;
}

// After DDL, functions in a long session may hold on to the types that a column had (PL/pgSQL's
// "type of parameter does not match that when preparing the plan"). No message is to blame for
// that.
void BatchRun::forget_plans() {
    ResetPlanCache();
    plans_are_fresh_ = true;
}

// Without a row there is no message to blame. An ERROR that only rows can bring about (a function
// called in a trigger that is gone) counts as the messages'.
bool BatchRun::statement_is_at_fault() {
    if (statement_works_ || !may_be_the_statements(error_.sqlstate)) return false;
    pg::Error error = error_;
    statement_works_ = attempt(0, 0);
    if (!statement_works_ && is_transient(error_.sqlstate)) return true;
    error_ = std::move(error);
    return !statement_works_;
}

void BatchRun::hold(HeldBy reason) {
    outcome_.held_by = reason;
    outcome_.held = error_;
}

// Rows that are in no tuplestore: nothing failed, and nothing was stored.
void BatchRun::report_unfit() {
    for (size_t index = 0; index < outcome_.done; ++index) {
        if (!rows_.unfit(index)) continue;
        outcome_.failures.push_back(
            {index, pg::make_error(ERRCODE_UNTRANSLATABLE_CHARACTER,
                                   "the topic has a character that the encoding of this database "
                                   "does not have")});
    }
    std::sort(outcome_.failures.begin(), outcome_.failures.end(),
              [](const Failure& a, const Failure& b) { return a.index < b.index; });
}

}  // namespace pgmqtt::sink
