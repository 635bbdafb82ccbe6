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

bool is_in_c(Oid function) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) return false;
    Oid language = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->prolang;
    ReleaseSysCache(tuple);
    return language == ClanguageId || language == INTERNALlanguageId;
}

void compare(const Calls& calls, const char* name) {
    for (int i = 0; i < calls.known_count; ++i) {
        if (std::strcmp(calls.known[i], name) == 0) return;
    }
    ereport(
        ERROR,
        (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
         errmsg("the expression now calls %s, which it did not when the mapping was made", name),
         errdetail("It would run with the rights of the mapping's owner."),
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
    char* name = format_procedure_qualified(function);
    if (rule == Rule::kNote) {
        note(*this, name);
    } else {
        compare(*this, name);
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
