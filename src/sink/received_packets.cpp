#include "sink/received_packets.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
}

#include "pg/datum.h"

namespace pgmqtt::sink {
namespace {

// A message for several sinks may fail in one of them; then its identifier is free again at once,
// without a PUBREL.
bool is_exactly_once(const Message& message) {
    return message.qos == mqtt::Qos::k2 && message.packet_id != 0 && message.sinks == 1;
}

constexpr int kColumns = 4;

// Session, packet identifier, the session's beginning and the fingerprint of some messages.
struct Columns {
    Datum* of[kColumns];
    int* place;
    int count = 0;

    explicit Columns(size_t size) {
        for (Datum*& column : of) column = static_cast<Datum*>(palloc(sizeof(Datum) * (size + 1)));
        place = static_cast<int*>(palloc(sizeof(int) * (size + 1)));
    }

    void add(const Message& message, size_t index) {
        of[0][count] = Int64GetDatum(static_cast<int64>(message.session_id));
        of[1][count] = Int32GetDatum(message.packet_id);
        of[2][count] = pg::timestamptz_datum(message.session_created_at);
        of[3][count] = Int64GetDatum(static_cast<int64>(fingerprint(message)));
        place[count++] = static_cast<int>(index);
    }

    void arrays(Datum* values) const {
        constexpr Oid kTypes[] = {INT8OID, INT4OID, TIMESTAMPTZOID, INT8OID};
        for (int i = 0; i < kColumns; ++i) values[i] = pg::array_datum(of[i], count, kTypes[i]);
    }
};

}  // namespace

ReceivedPackets::ReceivedPackets()
    : find_(
          "SELECT m.n::int4 FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), "
          "pg_catalog.unnest($3), pg_catalog.unnest($4)) WITH ORDINALITY "
          "AS m (session_id, packet_id, created_at, fingerprint, n) "
          "JOIN pgmqtt.sink_received AS r USING (session_id, packet_id) "
          "WHERE r.session_created_at = m.created_at AND r.fingerprint = m.fingerprint",
          {INT8ARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID}),
      note_(
          "INSERT INTO pgmqtt.sink_received AS r "
          "(session_id, packet_id, session_created_at, fingerprint) "
          "SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), "
          "pg_catalog.unnest($3), pg_catalog.unnest($4)) "
          "ON CONFLICT (session_id, packet_id) DO UPDATE SET "
          "session_created_at = excluded.session_created_at, fingerprint = excluded.fingerprint",
          {INT8ARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID}) {}

void ReceivedPackets::look_up(std::span<const Message* const> messages, std::vector<char>& known) {
    Columns columns(messages.size());
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_exactly_once(*messages[i])) columns.add(*messages[i], i);
    if (columns.count == 0) return;
    Datum values[kColumns];
    columns.arrays(values);
    uint64 rows = find_.execute(values);
    for (uint64 row = 0; row < rows; ++row) {
        bool null;
        Datum n = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 1, &null);
        known[static_cast<size_t>(columns.place[DatumGetInt32(n) - 1])] = 1;
    }
}

void ReceivedPackets::note(std::span<const Message* const> messages,
                           const std::vector<char>& left_out) {
    Columns columns(messages.size());
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_exactly_once(*messages[i]) && !left_out[i]) columns.add(*messages[i], i);
    if (columns.count == 0) return;
    Datum values[kColumns];
    columns.arrays(values);
    note_.execute(values);
}

}  // namespace pgmqtt::sink
