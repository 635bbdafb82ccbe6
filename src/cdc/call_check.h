// What an expression would call, found without calling it: the functions in its parse tree, those
// of the tables that it reads, of which the planner evaluates what is constant in index expressions
// and the like, and those that the server looks up only at run time, by the types of the values.
// Making JSON of a value calls a cast of its type to json that somebody defined; making a value of
// a domain, as the input functions of arrays, ranges and composites do, too, calls what its CHECKs
// call. Who owns such a type, or a table that takes it for a column, is not who owns the mapping.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <utils/plancache.h>
}

#include "cdc/calls.h"

namespace pgmqtt::cdc {

// ERROR when the current user may not do what the queries of `source` say, or `calls` forbids a
// function. May raise.
void check_calls(CachedPlanSource* source, Calls& calls);

// The same for values of this type. Before an expression over such values is parsed, too: a literal
// in it takes a type, and the parser calls the input function. May raise.
void check_type_calls(Oid type, Calls& calls);
// And of the types that the queries of `source` have, without asking for privileges. May raise.
void check_type_calls(CachedPlanSource* source, Calls& calls);

}  // namespace pgmqtt::cdc
