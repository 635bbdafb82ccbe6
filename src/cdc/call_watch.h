// DDL of others reaches this process whenever it takes a lock, also while it parses or evaluates an
// expression: then what call_check.h found does not hold any more. So while a watch lives, what the
// server is about to call is looked at in the place where it looks up functions, and what it is
// about to plan in the place where it plans.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <utils/plancache.h>
}

#include "cdc/calls.h"

namespace pgmqtt::cdc {

// Grows when a cast or a constraint may have changed.
uint64 type_changes();

// Plain data that stays where it is from begin() to end(). An ERROR in between ends it as well: it
// hangs on the server's stack of error contexts.
struct CallWatch {
    ErrorContextCallback callback;
    Calls* calls;
    Oid user;  // the mapping's owner: in functions that run as somebody else nothing is looked at
    Oid row_type;
    CachedPlanSource* source;  // null: none
    uint64* checked;           // type_changes() as of the last check; null: parsing, nothing is
    bool planning;             // of `source`, inside begin_evaluating()
    uint64 planned_at;         // catalog changes as of the last check while planning

    // What is parsed calls nothing but input functions of literals, and what these call is checked.
    void begin_parsing(Calls& calls);
    // If types changed since `checked`, those of the row and of `source` are checked again. Before
    // `source` is planned it is checked in any case, and while it is, after any change of a table.
    void begin_evaluating(Calls& calls, Oid row_type, CachedPlanSource* source, uint64& checked);
    void end() { error_context_stack = callback.previous; }

    void look_at(Oid function);
    bool is_of(const char* query) const {
        return !planning && source != nullptr && source->query_string == query;
    }
    // Inside of `evaluating`, which is_of() the query.
    void begin_planning(const CallWatch& evaluating);

   private:
    void begin();
    void look_while_planning();
};

}  // namespace pgmqtt::cdc
