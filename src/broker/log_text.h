// What strangers sent, made fit for a log line.
#pragma once

#include <string>

#include "base/bytes.h"
#include "broker/connection.h"

namespace pgmqtt::broker {

// In double quotes, anything but printable ASCII escaped, cut with "..." after a readable length.
std::string quote(base::ByteView text);

// `client "id" (address:port)`; without the id before CONNECT.
std::string describe(const Connection& c);

}  // namespace pgmqtt::broker
