// Errors of the server as MQTT reason strings and as lines of a view.
#pragma once

#include "pg/backend.h"

#include <string>

#include "base/bytes.h"
#include "pg/guard.h"

namespace pgmqtt::sink {

// At most `limit` bytes of text in the server's encoding, whole characters only.
base::ByteView cut_at_character(const std::string& text, size_t limit);

// UTF-8 without control characters, short enough for every client's Maximum Packet Size.
std::string reason_text(const pg::Error& error);

}  // namespace pgmqtt::sink
