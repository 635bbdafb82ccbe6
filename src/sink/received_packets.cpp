#include "sink/received_packets.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
}

#include "pg/columns.h"
#include "pg/datum.h"

namespace pgmqtt::sink {
namespace {

// A message for several sinks may fail in one of them; then its identifier is free again at once,
// without a PUBREL.
bool is_exactly_once(const Message& message) {
    return message.qos == mqtt::Qos::k2 && message.packet_id != 0 && message.sinks == 1;
}

// Session, packet identifier, the session's beginning, the fingerprint, and which message it is.
pg::Columns columns_for(size_t messages) {
    return {messages, {INT8OID, INT4OID, TIMESTAMPTZOID, INT8OID, INT4OID}};
}

void add(const Message& message, size_t index, pg::Columns& columns) {
    columns.add({Int64GetDatum(static_cast<int64>(message.session_id)),
                 Int32GetDatum(message.packet_id),
                 pg::timestamptz_datum(message.session_created_at),
                 Int64GetDatum(static_cast<int64>(fingerprint(message))),
                 Int32GetDatum(static_cast<int32>(index))});
}

}  // namespace

ReceivedPackets::ReceivedPackets()
    : find_(
          "SELECT m.n FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), "
          "pg_catalog.unnest($3), pg_catalog.unnest($4), pg_catalog.unnest($5)) "
          "AS m (session_id, packet_id, created_at, fingerprint, n) "
          "JOIN pgmqtt.sink_received AS r USING (session_id, packet_id) "
          "WHERE r.session_created_at = m.created_at AND r.fingerprint = m.fingerprint",
          {INT8ARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, INT4ARRAYOID}),
      note_(
          "INSERT INTO pgmqtt.sink_received AS r "
          "(session_id, packet_id, session_created_at, fingerprint) "
          "SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), "
          "pg_catalog.unnest($3), pg_catalog.unnest($4)) "
          "ON CONFLICT (session_id, packet_id) DO UPDATE SET "
          "session_created_at = excluded.session_created_at, fingerprint = excluded.fingerprint",
          {INT8ARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID}) {}

void ReceivedPackets::look_up(std::span<const Message* const> messages, std::vector<char>& known) {
    pg::Columns columns = columns_for(messages.size());
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_exactly_once(*messages[i])) add(*messages[i], i, columns);
    if (columns.empty()) return;
    uint64 rows = find_.execute(columns.arrays());
    for (uint64 row = 0; row < rows; ++row) {
        bool null;
        Datum n = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 1, &null);
        known[static_cast<size_t>(DatumGetInt32(n))] = 1;
    }
}

void ReceivedPackets::note(std::span<const Message* const> messages,
                           const std::vector<char>& left_out) {
    pg::Columns columns = columns_for(messages.size());
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_exactly_once(*messages[i]) && !left_out[i]) add(*messages[i], i, columns);
    if (!columns.empty()) note_.execute(columns.arrays());  // all but the last
}

}  // namespace pgmqtt::sink
