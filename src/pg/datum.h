// Values between C++ and the executor. Everything here pallocs in the current context and may
// raise: inside a guard only.
#pragma once

#include "pg/backend.h"

#include "base/bytes.h"
#include "base/time.h"

namespace pgmqtt::pg {

Datum text_datum(base::ByteView text);  // the bytes must be valid in the server encoding
Datum bytea_datum(base::ByteView bytes);
// UTF-8 text (MQTT's) in the server's encoding; raises when it has no such character.
Datum utf8_text_datum(base::ByteView utf8);
Datum timestamptz_datum(base::WallTime time);
base::WallTime wall_time(Datum timestamptz);  // infinity becomes WallTime::max()

// Views into a detoasted copy that lives in the current context. Works for text and bytea.
base::ByteView varlena_view(Datum value);
// Server encoding to UTF-8, as the wire wants it.
base::ByteView utf8_view(Datum text);

// One-dimensional array without NULLs.
Datum array_datum(const Datum* values, int count, Oid element_type);

}  // namespace pgmqtt::pg
