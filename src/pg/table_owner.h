// Tables of schema pgmqtt that are written by our functions only, and by the owner of the
// extension: who may call the functions holds no right on the tables.
#pragma once

#include "pg/transaction.h"

namespace pgmqtt::pg {

// Inside a guard; may raise, also when there is no such table.
Oid table_owner(const char* table);

// To be ended with act_as_before(). An ERROR leaves through the transaction's abort, which restores
// the role.
ActAs act_as_table_owner(const char* table);

}  // namespace pgmqtt::pg
