// What an ERROR says about the message, the statement or the weather.
#pragma once

#include "pg/guard.h"

#include "mqtt/reason.h"

namespace pgmqtt::sink {

// It will pass, and no message is to blame: deadlock, lock timeout, disk full, read-only, cancel
// ...
bool is_transient(int sqlstate);

// It may be the statement's own: a table that is gone, a right that was taken away. An empty batch
// tells (BatchRun); data exceptions and violated constraints need no such question.
bool may_be_the_statements(int sqlstate);

// What a publisher is told of a message that cannot be stored.
mqtt::ReasonCode reason_of(int sqlstate);

}  // namespace pgmqtt::sink
