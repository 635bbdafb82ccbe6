// The functions (and operators' functions) outside of pg_catalog that the expressions of a mapping
// call, by name or because of a type (call_check.h). They are noted when the mapping is made.
// Expressions are parsed again later, and whoever may create functions in a schema of the
// search_path could put one there that fits the arguments better; it would run with the rights of
// the mapping's owner. So what was not called then may not be called later, nor what has got
// another owner (but one who may act as the mapping's owner).
#pragma once

#include "pg/backend.h"

extern "C" {
#include <nodes/pg_list.h>
#include <utils/array.h>
}

namespace pgmqtt::cdc {

// Plain data, because the server may jump over it.
struct Calls {
    enum class Rule { kNote, kCompare, kAnything };
    Rule rule;
    const char* const* known;  // kCompare: "schema.function(types) owner role"
    int known_count;
    List* noted;  // kNote: of char*, each once

    // ERROR when the current user may not call `function`, or the rule forbids it.
    void check(Oid function);
    // The same of one that no expression names: the server calls it because of a type. Functions in
    // C are what only superusers make, and what extensions' types come with.
    void check_implied(Oid function);

   private:
    void apply_rule(Oid function);
};

// text[] of what was noted. pallocs.
Datum noted_calls(const Calls& calls);
// The same read again; null: anything may be called. pallocs.
Calls known_calls(ArrayType* names);

}  // namespace pgmqtt::cdc
