// One SQL expression of a mapping: parsed once, planned again after DDL, evaluated for every row.
// Plain data, because the server may jump over it: whoever owns one calls release().
#pragma once

#include "pg/backend.h"

extern "C" {
#include <executor/executor.h>
#include <executor/spi.h>
#include <nodes/execnodes.h>
#include <utils/plancache.h>
}

#include "cdc/scope.h"

namespace pgmqtt::cdc {

// What an expression is for decides which types it may have.
enum class Purpose { kTopic, kPayload, kFilter, kProperties };
const char* purpose_name(Purpose purpose);

// How a payload becomes bytes.
enum class PayloadKind { kText, kBytes, kJson, kJsonb };

struct Expression {
    Purpose purpose;
    SPIPlanPtr plan;  // null: the mapping has no such expression
    bool kept;        // beyond SPI_finish()
    unsigned uses;    // bit per Name
    Scope* names;     // as given to prepare()
    uint64 checked;   // see CallWatch
    PayloadKind kind;

    // For the transaction in which begin() was called.
    ExprState* state;  // null: not simple (it has a sub-select), goes through SPI
    ExprContext* context;

    bool given() const { return plan != nullptr; }

    // Parses `text` as the current user, with the current search_path; checks its type and that
    // this user may call what it calls. SPI is connected. May raise, with the place of the fault in
    // the text.
    void prepare(Purpose expression_purpose, const char* text, Scope* scope);
    // After prepare(): makes the plan outlive SPI_finish().
    void keep();
    // Frees a kept plan. Does not raise in practice, but belongs inside a guard.
    void release();

    // Around the evaluation of a batch, inside one transaction. May raise. An abort does end()'s
    // work.
    void begin(ParamListInfo values);
    void end();
    void forget() {
        state = nullptr;
        context = nullptr;
    }
    // The value for `values` as given to begin(), valid until the next reset(). May raise.
    Datum evaluate(ParamListInfo values, bool* is_null);
    void reset() {
        if (state != nullptr) ResetExprContext(context);
    }

   private:
    CachedPlanSource* source() const;
    void check_again();
};

}  // namespace pgmqtt::cdc
