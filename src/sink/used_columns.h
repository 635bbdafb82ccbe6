// Which columns of an ephemeral named relation an analyzed query reads.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <nodes/pg_list.h>
}

#include "sink/msg_relation.h"

namespace pgmqtt::sink {

// `queries`: Query nodes after analysis and rewriting. Replaces what `used` said. May raise.
void mark_used_columns(List* queries, const char* relation, ColumnSet& used);

}  // namespace pgmqtt::sink
