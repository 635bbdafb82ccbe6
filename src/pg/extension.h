// The extension, as a worker serves it. One that is dropped and created again is another: what is
// known of the first does not hold for it.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::pg {

// Outside transactions. Looks for it, and serves from now on what it finds. False: there is none,
// or it is foreign: made by scripts of another build than this library, so that tables and columns
// may be missing. `make` gives the scripts and the library the same fingerprint.
bool serve_extension();

// Whether serve_extension() would find anything else than it did. Cheap.
bool extension_may_have_changed();

// What serve_extension() found, foreign or not; InvalidOid: none.
Oid found_extension();
bool found_is_foreign();

// The foreign one in a WARNING, with what is to be done.
void report_foreign_extension();

// May raise. ERROR object_not_in_prerequisite_state if a worker found the extension of this
// database foreign and it still is. Usually one load.
void require_own_schema();

// May raise. For the script that creates the extension.
void require_own_script();

// Outside transactions: whether the one that is served is still there, and not foreign. Cheap
// unless Shared::configuration has moved. For the loops of the workers, and for whoever would
// complain of what is only the end of the extension.
bool extension_exists();

// In a transaction: ERROR undefined_object if it is not. With locks on its tables it stays true.
void require_extension();

}  // namespace pgmqtt::pg
