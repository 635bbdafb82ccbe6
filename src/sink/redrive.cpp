#include "sink/redrive.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <utils/memutils.h>
}

#include <utility>

#include "broker/sink_filter.h"
#include "pg/datum.h"
#include "pg/properties.h"
#include "pg/table_owner.h"
#include "sink/sink_transaction.h"

namespace pgmqtt::sink {
namespace {

// Memory of one batch, gone with its scope.
class BatchMemory {
   public:
    BatchMemory() {
        pg::value_or_throw(pg::guard([this] {
            context_ = AllocSetContextCreate(CurrentMemoryContext, "pgmqtt redrive",
                                             ALLOCSET_DEFAULT_SIZES);
        }));
        caller_ = MemoryContextSwitchTo(context_);
    }
    ~BatchMemory() {
        MemoryContextSwitchTo(caller_);
        MemoryContextDelete(context_);
    }
    BatchMemory(const BatchMemory&) = delete;

   private:
    MemoryContext context_ = nullptr;
    MemoryContext caller_ = nullptr;
};

// A row as it leaves the guard in which it was read.
struct Row {
    int64_t id;
    MessageParts parts;
    base::ByteView key;
    Datum properties;  // jsonb; 0: none
    int qos;
    bool retain;
    base::WallTime received_at;
};

// Out of SPI's copy of the row, which goes before the batch does.
Datum kept(Datum value) {
    return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
}

base::ByteView utf8_or_empty(HeapTuple tuple, TupleDesc desc, int column) {
    bool null;
    Datum value = SPI_getbinval(tuple, desc, column, &null);
    return null ? base::ByteView() : pg::utf8_view(kept(value));
}

Row read_row(HeapTuple tuple, TupleDesc desc) {
    bool null;
    Row row{};
    row.id = DatumGetInt64(SPI_getbinval(tuple, desc, 1, &null));
    row.parts.topic = utf8_or_empty(tuple, desc, 2);
    Datum payload = SPI_getbinval(tuple, desc, 3, &null);
    if (!null) row.parts.payload = pg::varlena_view(kept(payload));
    Datum properties = SPI_getbinval(tuple, desc, 4, &null);
    row.properties = null ? 0 : kept(properties);
    row.parts.client_id = utf8_or_empty(tuple, desc, 5);
    row.parts.username = utf8_or_empty(tuple, desc, 6);
    row.qos = DatumGetInt32(SPI_getbinval(tuple, desc, 7, &null));
    row.retain = DatumGetBool(SPI_getbinval(tuple, desc, 8, &null));
    row.received_at = pg::wall_time(SPI_getbinval(tuple, desc, 9, &null));
    row.key = utf8_or_empty(tuple, desc, 10);
    return row;
}

std::shared_ptr<Message> message_of(const Row& row) {
    std::string properties;
    if (row.properties != 0) properties = pg::properties_from_jsonb(row.properties);
    MessageParts parts = row.parts;
    parts.properties = properties;
    auto message = make_message(parts);
    message->qos = static_cast<mqtt::Qos>(row.qos);
    message->retain = row.retain;
    message->received_at = row.received_at;
    message->key = row.key;
    return message;
}

}  // namespace

Redrive::Redrive()
    // Two at a time would store a message twice; and the sink stays while it is used.
    : lock_("SELECT id FROM pgmqtt.sink WHERE id = $1 FOR NO KEY UPDATE", {INT4OID}),
      // As many as a batch of the worker has; octet_length() does not read a payload.
      fetch_(
          "SELECT id, topic, payload, properties, client_id, username, coalesce(qos, 0)::int4, "
          "coalesce(retain, false), coalesce(received_at, at), message_key "
          "FROM (SELECT *, sum(octet_length(payload)) OVER (ORDER BY id) - octet_length(payload) "
          "AS before FROM pgmqtt.dead_letter WHERE source = 'sink' AND name = $1 AND id > $2 "
          "AND topic IS NOT NULL ORDER BY id LIMIT 1000) AS batch "
          "WHERE coalesce(before, 0) < 16777216 ORDER BY id",
          {TEXTOID, INT8OID}),
      remove_("DELETE FROM pgmqtt.dead_letter WHERE id = ANY ($1)", {INT8ARRAYOID}),
      update_(
          "UPDATE pgmqtt.dead_letter SET attempts = attempts + 1, sqlstate = $2, message = $3, "
          "at = clock_timestamp() WHERE id = $1",
          {INT8OID, TEXTOID, TEXTOID}) {}

int64_t Redrive::run(const Definition& definition) {
    auto filter = broker::parse_sink_filter(definition.filter);
    if (!filter)
        throw pg::Raised(pg::make_error(ERRCODE_INVALID_PARAMETER_VALUE, filter.error().message));
    MsgColumns columns(std::move(filter->captures));
    SinkStatement statement(definition, columns);
    lock(definition);
    last_id_ = 0;
    int64_t stored = 0;
    while (true) {
        BatchMemory memory;
        fetch(definition);
        if (letters_.empty()) return stored;
        std::vector<const Message*> messages;
        for (const Letter& letter : letters_) messages.push_back(letter.message.get());
        Outcome outcome;
        BatchRun batch(statement, columns, messages, outcome);
        pg::value_or_throw(pg::guard([&] {
            check_constraints_at_once();
            batch.run_bisected();
        }));
        if (outcome.held_by != HeldBy::kNothing) throw pg::Raised(std::move(outcome.held));
        record(outcome);
        stored += static_cast<int64_t>(letters_.size() - outcome.failures.size());
    }
}

void Redrive::lock(const Definition& definition) {
    pg::value_or_throw(pg::guard([&] {
        SPI_connect();
        pg::ActAs saved = pg::act_as_table_owner("sink");
        Datum id = Int32GetDatum(static_cast<int32>(definition.id));
        lock_.execute(&id);
        pg::act_as_before(saved);
        SPI_finish();
    }));
}

void Redrive::fetch(const Definition& definition) {
    letters_.clear();
    const Row* rows = nullptr;
    size_t count = 0;
    MemoryContext memory = CurrentMemoryContext;
    pg::value_or_throw(pg::guard([&] {
        SPI_connect();
        pg::ActAs saved = pg::act_as_table_owner("sink");
        Datum values[] = {pg::text_datum(definition.name), Int64GetDatum(last_id_)};
        count = fetch_.execute(values);
        MemoryContext spi = MemoryContextSwitchTo(memory);
        Row* read = static_cast<Row*>(palloc(sizeof(Row) * (count + 1)));
        for (size_t i = 0; i < count; ++i)
            read[i] = read_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
        MemoryContextSwitchTo(spi);
        rows = read;
        pg::act_as_before(saved);
        SPI_finish();
    }));
    for (size_t i = 0; i < count; ++i) letters_.push_back({rows[i].id, message_of(rows[i])});
    if (count > 0) last_id_ = letters_.back().id;
}

void Redrive::record(const Outcome& outcome) {
    pg::value_or_throw(pg::guard([&] {
        SPI_connect();
        pg::ActAs saved = pg::act_as_table_owner("sink");
        Datum* stored = static_cast<Datum*>(palloc(sizeof(Datum) * letters_.size()));
        int count = 0;
        auto failure = outcome.failures.begin();
        for (size_t index = 0; index < letters_.size(); ++index) {
            if (failure == outcome.failures.end() || failure->index != index) {
                stored[count++] = Int64GetDatum(letters_[index].id);
                continue;
            }
            Datum values[] = {Int64GetDatum(letters_[index].id),
                              pg::text_datum(unpack_sql_state(failure->error.sqlstate)),
                              pg::text_datum(failure->error.message)};
            update_.execute(values);
            ++failure;
        }
        Datum ids = pg::array_datum(stored, count, INT8OID);
        if (count > 0) remove_.execute(&ids);
        pg::act_as_before(saved);
        SPI_finish();
    }));
}

}  // namespace pgmqtt::sink
