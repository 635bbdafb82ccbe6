#include "sink/message_keys.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
}

#include <algorithm>

#include "pg/columns.h"
#include "pg/datum.h"
#include "pg/log.h"
#include "pg/transaction.h"
#include "sink/lock_patience.h"
#include "sink/msg_values.h"
#include "sink/sink_transaction.h"

namespace pgmqtt::sink {
namespace {

constexpr std::chrono::minutes kCleanUpInterval{10};

Datum session_datum(uint64_t session_id) {
    return Int64GetDatum(static_cast<int64>(session_id));
}

}  // namespace

MessageKeys::MessageKeys()
    : find_(
          "SELECT session_id, packet_id, session_created_at, fingerprint, message_key "
          "FROM pgmqtt.sink_message_key WHERE (session_id, packet_id) IN "
          "(SELECT s, p FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) "
          "AS repeated (s, p))",
          {INT8ARRAYOID, INT4ARRAYOID}),
      note_(
          "INSERT INTO pgmqtt.sink_message_key AS k "
          "(session_id, packet_id, session_created_at, fingerprint, message_key) "
          "SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), "
          "pg_catalog.unnest($3), pg_catalog.unnest($4), pg_catalog.unnest($5)) "
          "ON CONFLICT (session_id, packet_id) DO UPDATE SET "
          "session_created_at = excluded.session_created_at, fingerprint = excluded.fingerprint, "
          "message_key = excluded.message_key",
          {INT8ARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, TEXTARRAYOID}),
      forget_(
          "DELETE FROM pgmqtt.sink_message_key AS k WHERE NOT EXISTS (SELECT FROM pgmqtt.session "
          "AS s WHERE s.session_id = k.session_id AND s.created_at = k.session_created_at)",
          {}),
      forget_received_(
          "DELETE FROM pgmqtt.sink_received AS k WHERE NOT EXISTS (SELECT FROM pgmqtt.session "
          "AS s WHERE s.session_id = k.session_id AND s.created_at = k.session_created_at)",
          {}) {}

void MessageKeys::resolve(std::span<const Message* const> messages) {
    last_.clear();
    look_up(messages);
    follow(messages);
    note();
}

// What was stored under the identifiers that come again.
void MessageKeys::look_up(std::span<const Message* const> messages) {
    pg::Columns repeated(messages.size(), {INT8OID, INT4OID});
    for (const Message* message : messages)
        if (message->dup)
            repeated.add({session_datum(message->session_id), Int32GetDatum(message->packet_id)});
    if (repeated.empty()) return;
    uint64 rows = find_.execute(repeated.arrays());
    for (uint64 i = 0; i < rows; ++i) {
        HeapTuple tuple = SPI_tuptable->vals[i];
        TupleDesc desc = SPI_tuptable->tupdesc;
        bool null;
        auto session = static_cast<uint64_t>(DatumGetInt64(SPI_getbinval(tuple, desc, 1, &null)));
        auto packet = static_cast<uint16_t>(DatumGetInt32(SPI_getbinval(tuple, desc, 2, &null)));
        base::WallTime created = pg::wall_time(SPI_getbinval(tuple, desc, 3, &null));
        auto print = static_cast<uint64_t>(DatumGetInt64(SPI_getbinval(tuple, desc, 4, &null)));
        base::ByteView key = pg::utf8_view(SPI_getbinval(tuple, desc, 5, &null));
        last_[{session, packet}] = {created, print, std::string(key), true};
    }
}

// In order of arrival: what is repeated may stand before its repetition in the same batch.
void MessageKeys::follow(std::span<const Message* const> messages) {
    for (const Message* message : messages) {
        if (message->packet_id == 0) continue;
        uint64_t print = fingerprint(*message);
        Last& last = last_[{message->session_id, message->packet_id}];
        bool repeats = message->dup && !last.key.empty() && last.fingerprint == print &&
                       last.session_created_at == message->session_created_at;
        if (repeats)
            message->key = last.key;
        else
            last = {message->session_created_at, print, message->key, false};
    }
}

void MessageKeys::note() {
    pg::Columns columns(last_.size(), {INT8OID, INT4OID, TIMESTAMPTZOID, INT8OID, TEXTOID});
    for (const auto& [place, last] : last_) {
        Datum key;
        // A key that the database's encoding cannot say is NULL in msg, too.
        if (last.stored || !text_value(last.key, &key)) continue;
        columns.add({session_datum(place.first), Int32GetDatum(place.second),
                     pg::timestamptz_datum(last.session_created_at),
                     Int64GetDatum(static_cast<int64>(last.fingerprint)), key});
    }
    if (!columns.empty()) note_.execute(columns.arrays());
}

void MessageKeys::clean_up() {
    auto now = std::chrono::steady_clock::now();
    if (now < cleaned_at_ + kCleanUpInterval) return;
    cleaned_at_ = now;
    pg::Status status = pg::transaction({.wait = pg::CommitWait::kNothing}, [&] {
        limit_lock_waits(LockPatience::kLongest);
        forget_.execute(nullptr);
        forget_received_.execute(nullptr);
    });
    // Rows of sessions that are gone do no harm: the next time will do.
    if (!status) pg::log(DEBUG1, "could not clean pgmqtt.sink_message_key", status.error());
}

}  // namespace pgmqtt::sink
