// The server log, from C++ frames: reports below ERROR never jump, but they may run out of memory,
// so they are guarded here.
#pragma once

#include "pg/backend.h"

#include <string_view>

#include "pg/guard.h"

namespace pgmqtt::pg {

// `level` is LOG, WARNING, INFO, DEBUG1...; never ERROR. Honours pgmqtt.log_level. Control
// characters are escaped and long texts cut: what clients send may be part of the message.
void log(int level, std::string_view message, std::string_view detail = {},
         std::string_view hint = {}) noexcept;
void log(int level, std::string_view what, const Error& error) noexcept;

}  // namespace pgmqtt::pg
