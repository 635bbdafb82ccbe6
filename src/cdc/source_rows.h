// The rows that are in a source now, as a query.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::cdc {

// Two columns: the row, and the oid of the table or partition that holds it. `predicate` (or null)
// is one expression over it: it cannot end the WHERE that it is put into. Runs as whoever gives it:
// what the table's owner lets a plan call, any SELECT of his would call, too. pallocs; raises with
// the place of the fault.
const char* rows_query(Oid source, const char* predicate);

}  // namespace pgmqtt::cdc
