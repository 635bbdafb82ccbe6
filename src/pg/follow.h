// A change of mappings or sinks is in force when its COMMIT returns: the committing backend waits
// for the workers that act on it.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::pg {

enum Followed : unsigned {
    kFollowMappings = 1U << 0,  // the cdc worker decodes with the new mappings
    kFollowSinks = 1U << 1,     // the broker subscribed, the sink worker knows the statement
    kFollowRules = 1U << 2,     // the broker stores by the new durability rules
};

// Makes the commit of the current transaction wait until the workers have followed, or cannot;
// bounded by 10 s, ended by a cancel. `then`, if given, is called afterwards. May raise.
void follow_at_commit(unsigned followed, void (*then)() = nullptr);

}  // namespace pgmqtt::pg
