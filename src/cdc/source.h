// The relation that a mapping reads.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::cdc {

// ERROR unless `relation` is a table that logical decoding shows and that `role` may read whole.
// The current user's rights do not matter.
void check_source(Oid relation, Oid role);

// ERROR with `hint` when row-level security hides rows of it from the current user.
void check_sees_all(Oid relation, const char* hint);

// What logical decoding gives as `old`.
enum class OldRow { kNothing, kKey, kWhole };
OldRow old_row_of(Oid relation);
bool old_row_has(Oid relation, const char* column);

// `relation` and, if it is partitioned, all its partitions. pallocs, may raise.
struct Oids {
    Oid* items;
    int count;
};
Oids with_partitions(Oid relation);

}  // namespace pgmqtt::cdc
