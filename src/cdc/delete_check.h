// What a DELETE can be made into: better said when a mapping is made than with each row.
#pragma once

#include "cdc/mapping.h"

namespace pgmqtt::cdc {

struct DeletePremise {
    const char* mapping;
    Oid source;
    bool retain;
    bool default_payload;
};

// ERROR or WARNING where the replica identity of the table, or of one of its partitions, does not
// give what `expressions`, which are prepared, need of a deleted row. May raise.
void check_delete(const DeletePremise& premise, MappingExpressions& expressions);

}  // namespace pgmqtt::cdc
