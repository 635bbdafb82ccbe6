#include "cdc/calls.h"

extern "C" {
#include <access/htup_details.h>
#include <catalog/pg_language.h>
#include <catalog/pg_namespace.h>
#include <catalog/pg_proc.h>
#include <catalog/pg_type.h>
#include <miscadmin.h>
#include <utils/array.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
#include <utils/regproc.h>
#include <utils/syscache.h>
}

#include <cstring>

#include "pg/datum.h"
#include "pg/privilege.h"

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

void note(Calls& calls, char* name) {
    ListCell* cell;
    foreach (cell, calls.noted) {
        if (std::strcmp(static_cast<const char*>(lfirst(cell)), name) == 0) return;
    }
    calls.noted = lappend(calls.noted, name);
}

struct Function {
    Oid language;
    Oid owner;
};

Function find_function(Oid id) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(id));
    if (!HeapTupleIsValid(tuple)) elog(ERROR, "cache lookup failed for function %u", id);
    auto* form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
    Function function = {form->prolang, form->proowner};
    ReleaseSysCache(tuple);
    return function;
}

bool is_in_c(Oid function) {
    Oid language = find_function(function).language;
    return language == ClanguageId || language == INTERNALlanguageId;
}

// The owner says what it does. Nothing keeps a function that a mapping calls from being dropped,
// and what somebody else then puts in its place is another one.
char* with_owner(const char* name, Oid owner) {
    return psprintf("%s owner %s", name, quote_identifier(GetUserNameFromId(owner, false)));
}

bool is_known(const Calls& calls, const char* text) {
    for (int i = 0; i < calls.known_count; ++i) {
        if (std::strcmp(calls.known[i], text) == 0) return true;
    }
    return false;
}

bool is_known_of_somebody(const Calls& calls, const char* name) {
    const char* begin = psprintf("%s owner ", name);
    for (int i = 0; i < calls.known_count; ++i) {
        if (std::strncmp(calls.known[i], begin, std::strlen(begin)) == 0) return true;
    }
    return false;
}

void compare(const Calls& calls, const char* name, Oid owner) {
    if (is_known(calls, with_owner(name, owner))) return;
    bool replaced = is_known_of_somebody(calls, name);
    // Who may act as the mapping's owner gains nothing.
    if (replaced && has_privs_of_role(owner, GetUserId())) return;
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
             errmsg("the expression now calls %s, which %s when the mapping was made", name,
                    replaced ? "belonged to somebody else" : "it did not"),
             errdetail(
                 "It belongs to role \"%s\", and would run with the rights of the mapping's owner.",
                 GetUserNameFromId(owner, false)),
             errhint("If that is meant, drop the mapping and add it again.")));
}

}  // namespace

void Calls::check(Oid function) {
    pg::require_execute(function, OBJECT_FUNCTION);
    apply_rule(function);
}

void Calls::check_implied(Oid function) {
    if (!is_in_c(function)) apply_rule(function);
}

void Calls::apply_rule(Oid function) {
    if (rule == Rule::kAnything || get_func_namespace(function) == PG_CATALOG_NAMESPACE) return;
    const char* name = format_procedure_qualified(function);
    Oid owner = find_function(function).owner;
    if (rule == Rule::kNote) {
        note(*this, with_owner(name, owner));
    } else {
        compare(*this, name, owner);
    }
}

Datum noted_calls(const Calls& calls) {
    int count = list_length(calls.noted);
    auto* names = static_cast<Datum*>(palloc(sizeof(Datum) * static_cast<size_t>(count + 1)));
    for (int i = 0; i < count; ++i) {
        names[i] = CStringGetTextDatum(static_cast<const char*>(list_nth(calls.noted, i)));
    }
    return pg::array_datum(names, count, TEXTOID);
}

Calls known_calls(ArrayType* names) {
    if (names == nullptr) return {Calls::Rule::kAnything, nullptr, 0, NIL};
    Datum* elements;
    bool* nulls;
    int count;
    deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
    auto** known =
        static_cast<const char**>(palloc(sizeof(char*) * static_cast<size_t>(count + 1)));
    for (int i = 0; i < count; ++i) known[i] = nulls[i] ? "" : TextDatumGetCString(elements[i]);
    return {Calls::Rule::kCompare, known, count, NIL};
}

}  // namespace pgmqtt::cdc
