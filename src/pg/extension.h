// The extension, as a worker serves it. One that is dropped and created again is another: what is
// known of the first does not hold for it.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::pg {

// Outside transactions. Looks for it, and serves from now on what it finds. False: there is none.
bool serve_extension();

// Outside transactions: whether the one that is served is still there. Cheap unless
// Shared::configuration has moved. For the loops of the workers, and for whoever would complain of
// what is only the end of the extension.
bool extension_exists();

// In a transaction: ERROR undefined_object if it is not. With locks on its tables it stays true.
void require_extension();

}  // namespace pgmqtt::pg
