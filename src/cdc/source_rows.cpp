#include "cdc/source_rows.h"

extern "C" {
#include <catalog/pg_class.h>
#include <parser/parser.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
}

namespace pgmqtt::cdc {

namespace {

void point_into_predicate(void* predicate) {
    int position = geterrposition();
    if (position <= 0) return;
    errposition(0);
    internalerrposition(position);
    internalerrquery(static_cast<const char*>(predicate));
}

void check_predicate(const char* predicate) {
    ErrorContextCallback callback = {error_context_stack, point_into_predicate,
                                     const_cast<char*>(predicate)};
    error_context_stack = &callback;
    raw_parser(predicate, RAW_PARSE_PLPGSQL_EXPR);
    error_context_stack = callback.previous;
}

}  // namespace

const char* rows_query(Oid source, const char* predicate) {
    if (predicate != nullptr) check_predicate(predicate);
    const char* table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(source)),
                                                   get_rel_name(source));
    // A partitioned table's mapping is about its partitions, a plain table's not about its
    // children.
    bool partitioned = get_rel_relkind(source) == RELKIND_PARTITIONED_TABLE;
    return psprintf("SELECT new, new.tableoid FROM %s %s AS new WHERE (%s\n)",
                    partitioned ? "" : "ONLY", table, predicate == nullptr ? "true" : predicate);
}

}  // namespace pgmqtt::cdc
