// A change of mappings or sinks is in force when its COMMIT returns, and what was asked of the
// broker has happened: the committing backend waits for the workers that act on it.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::pg {

enum Followed : unsigned {
    kFollowMappings = 1U << 0,  // the cdc worker decodes with the new mappings
    kFollowSinks = 1U << 1,     // the broker subscribed, the sink worker knows the statement
    kFollowRules = 1U << 2,     // the broker stores by the new durability rules
    kFollowCommands = 1U << 3,  // the broker has carried out rows of pgmqtt.command
};

// Tells the workers at the commit of the current transaction, and makes it wait until they have
// followed, or cannot; bounded by 10 s, ended by a cancel. It waits when the locks of the
// transaction are released: a worker may need one of them. `then`, if given, is called afterwards.
// May raise.
void follow_at_commit(unsigned followed, void (*then)() = nullptr);

// While one lives, in the cdc worker, a change of mappings that is not followed for long interrupts
// it: an expression may be endless. Nothing else is interrupted, decoding could not go on.
class Interruptible {
   public:
    Interruptible();
    ~Interruptible();
    Interruptible(const Interruptible&) = delete;
};

}  // namespace pgmqtt::pg
