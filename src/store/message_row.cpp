#include "store/message_row.h"

extern "C" {
#include <access/detoast.h>
#include <executor/tuptable.h>
}

#include "pg/datum.h"

namespace pgmqtt::store {
namespace {

constexpr size_t kRowOverhead = 88;  // header, line pointer, fixed columns

}  // namespace

size_t append_message(pg::TableAppender& table, uint64_t id, const broker::MessageView& message,
                      pg::RowPlace* place) {
    MemoryContext before = MemoryContextSwitchTo(table.context());
    size_t bytes = message.topic.size() + message.payload.size() + message.properties.size();
    table.add(
        {Int64GetDatum(static_cast<int64>(id)), pg::bytea_datum(message.topic),
         pg::bytea_datum(message.payload), Int16GetDatum(static_cast<int16>(message.qos)),
         BoolGetDatum(message.retain), pg::bytea_datum(message.properties),
         pg::timestamptz_datum(message.received_at), pg::timestamptz_datum(message.expires_at)},
        bytes, place);
    MemoryContextSwitchTo(before);
    return bytes + kRowOverhead;
}

size_t append_copy(pg::TableAppender& table, uint64_t id, TupleTableSlot* source,
                   pg::RowPlace* place) {
    slot_getallattrs(source);
    size_t bytes = 0;
    for (int column : {1, 2, 5}) bytes += toast_raw_datum_size(source->tts_values[column]);
    table.add_copy(source, Int64GetDatum(static_cast<int64>(id)), bytes, place);
    return bytes + kRowOverhead;
}

broker::MessageView message_of_row(TupleTableSlot* row) {
    slot_getallattrs(row);
    const Datum* values = row->tts_values;
    return {.topic = pg::varlena_view(values[1]),
            .payload = pg::varlena_view(values[2]),
            .qos = static_cast<mqtt::Qos>(DatumGetInt16(values[3])),
            .retain = DatumGetBool(values[4]),
            .properties = pg::varlena_view(values[5]),
            .received_at = pg::wall_time(values[6]),
            .expires_at = pg::wall_time(values[7])};
}

}  // namespace pgmqtt::store
