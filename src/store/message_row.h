// A row of a message table: message_id, topic, payload, qos, retain, properties, received_at,
// expires_at. In a transaction; may raise.
#pragma once

#include "pg/guard.h"

#include "broker/message_view.h"
#include "pg/append_table.h"

namespace pgmqtt::store {

// Both return about how many bytes the row takes.
size_t append_message(pg::TableAppender& table, uint64_t id, const broker::MessageView& message,
                      pg::RowPlace* place);
size_t append_copy(pg::TableAppender& table, uint64_t id, TupleTableSlot* source,
                   pg::RowPlace* place);

// Views into the row, or into what is detoasted in the current context.
broker::MessageView message_of_row(TupleTableSlot* row);

}  // namespace pgmqtt::store
