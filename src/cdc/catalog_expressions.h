// Expressions that the catalogs keep for a table or a domain, as they were parsed. Read there and
// not from the server's caches, which simplify them first, and that already calls functions.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <catalog/pg_class.h>
#include <nodes/pg_list.h>
}

namespace pgmqtt::cdc {

// Lists of Node*. pallocs, may raise.

// What a domain's own CHECKs say.
List* domain_checks(Oid domain);

// All that planning a SELECT from this table may simplify: expressions and predicates of indexes,
// expressions of extended statistics and of the partition key, CHECKs.
List* planned_expressions(Form_pg_class table);

}  // namespace pgmqtt::cdc
