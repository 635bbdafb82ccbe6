// The tables pgmqtt.sink and pgmqtt.dead_letter are written by our functions only, and by the owner
// of the extension; who may call the functions holds no right on the tables.
#pragma once

#include "pg/transaction.h"

namespace pgmqtt::sink {

// To be ended with pg::act_as_before(). Inside a guard; may raise.
pg::ActAs act_as_table_owner();

}  // namespace pgmqtt::sink
