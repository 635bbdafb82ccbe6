#include "store/retained.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
#include <storage/lockdefs.h>
#include <utils/timestamp.h>
}

#include "pg/append_table.h"
#include "pg/datum.h"
#include "pg/transaction.h"

namespace pgmqtt::store {

using broker::StoreKind;

RetainedTable::RetainedTable()
    : remove_(
          // A join: of two arrays each row that is found would be compared with all topics.
          "DELETE FROM pgmqtt.retained_message r USING unnest($1, $2) AS gone (hash, topic) "
          "WHERE r.topic_hash = gone.hash AND r.topic = gone.topic",
          {INT8ARRAYOID, BYTEAARRAYOID}),
      insert_(
          "INSERT INTO pgmqtt.retained_message "
          "SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7)",
          {INT8ARRAYOID, BYTEAARRAYOID, BYTEAARRAYOID, INT2ARRAYOID, BYTEAARRAYOID,
           TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID}) {}

void RetainedTable::Changes::add(const broker::StoreRecord& record) {
    auto [position, fresh] = index_.try_emplace(record.message.topic, entries_.size());
    if (fresh)
        entries_.push_back({base::hash(record.message.topic), record.replaces, record});
    else
        entries_[position->second].record = record;
}

void RetainedTable::Changes::clear() {
    entries_.clear();
    index_.clear();
}

void RetainedTable::apply(const Changes& changes, bool repeated) {
    size_t count = changes.entries_.size();
    if (count == 0) return;
    constexpr int kColumns = 7;
    Datum* columns[kColumns];
    for (Datum*& column : columns) column = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    int kept = 0;
    int removed = 0;
    Datum* gone_hash = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    Datum* gone_topic = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    for (size_t i = 0; i < count; ++i) {
        const auto& entry = changes.entries_[i];
        const broker::MessageView& message = entry.record.message;
        Datum hash = Int64GetDatum(static_cast<int64>(entry.topic_hash));
        Datum topic = pg::bytea_datum(message.topic);
        if (repeated || entry.replaces) {
            gone_hash[removed] = hash;
            gone_topic[removed++] = topic;
        }
        if (entry.record.kind != StoreKind::kRetain) continue;
        columns[0][kept] = hash;
        columns[1][kept] = topic;
        columns[2][kept] = pg::bytea_datum(message.payload);
        columns[3][kept] = Int16GetDatum(static_cast<int16>(message.qos));
        columns[4][kept] = pg::bytea_datum(message.properties);
        columns[5][kept] = pg::timestamptz_datum(message.received_at);
        columns[6][kept] = pg::timestamptz_datum(message.expires_at);
        ++kept;
    }
    if (removed > 0) {
        Datum gone[] = {pg::array_datum(gone_hash, removed, INT8OID),
                        pg::array_datum(gone_topic, removed, BYTEAOID)};
        remove_.execute(gone);
    }
    if (kept == 0) return;
    constexpr Oid kTypes[kColumns] = {INT8OID,  BYTEAOID,       BYTEAOID,      INT2OID,
                                      BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
    Datum arrays[kColumns];
    for (int i = 0; i < kColumns; ++i) arrays[i] = pg::array_datum(columns[i], kept, kTypes[i]);
    insert_.execute(arrays);
}

namespace {

broker::MessageView message_of_row(HeapTuple row, TupleDesc desc) {
    bool null;
    broker::MessageView message;
    message.topic = pg::varlena_view(SPI_getbinval(row, desc, 1, &null));
    message.payload = pg::varlena_view(SPI_getbinval(row, desc, 2, &null));
    message.qos = static_cast<mqtt::Qos>(DatumGetInt16(SPI_getbinval(row, desc, 3, &null)));
    message.retain = true;
    message.properties = pg::varlena_view(SPI_getbinval(row, desc, 4, &null));
    message.received_at = pg::wall_time(SPI_getbinval(row, desc, 5, &null));
    message.expires_at = pg::wall_time(SPI_getbinval(row, desc, 6, &null));
    return message;
}

}  // namespace

pg::Status load_retained(const std::function<void(const broker::MessageView&)>& take) {
    return pg::transaction({.activity = "pgmqtt: loading retained messages"}, [&] {
        pg::lock(pg::table_id("retained_message"), RowExclusiveLock);
        SPI_execute("DELETE FROM pgmqtt.retained_message WHERE expires_at <= pg_catalog.now()",
                    false, 0);
        // A cursor: the payloads of a million retained messages do not stand in memory twice.
        Portal portal = SPI_cursor_open_with_args(
            nullptr,
            "SELECT topic, payload, qos, properties, stored_at, expires_at "
            "FROM pgmqtt.retained_message",
            0, nullptr, nullptr, nullptr, true, 0);
        constexpr long kRowsPerFetch = 1000;
        for (;;) {
            SPI_cursor_fetch(portal, true, kRowsPerFetch);
            if (SPI_processed == 0) break;
            for (uint64 i = 0; i < SPI_processed; ++i)
                take(message_of_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc));
            SPI_freetuptable(SPI_tuptable);
        }
        SPI_cursor_close(portal);
    });
}

}  // namespace pgmqtt::store
