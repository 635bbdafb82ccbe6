// The parts of a message as values of columns of msg. All of these palloc in the current context
// and may raise; false stands for NULL.
#pragma once

#include "pg/backend.h"

#include "sink/message.h"
#include "sink/msg_relation.h"

namespace pgmqtt::sink {

// UTF-8 as text of the server; false when it has no such character.
bool text_value(base::ByteView utf8, Datum* value);

// All properties of the message as pgmqtt.dead_letter shows them.
bool properties_value(const Message& message, Datum* value);

// Any column but a capture.
bool message_value(const Message& message, MsgColumns::Kind kind, Datum* value);

}  // namespace pgmqtt::sink
