#include "store/commands.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
#include <storage/lockdefs.h>
}

#include "pg/append_table.h"
#include "pg/columns.h"
#include "pg/datum.h"
#include "pg/transaction.h"

namespace pgmqtt::store {
namespace {

constexpr uint64 kRowsPerBatch = 1000;

// Of the last statement.
broker::CommandRecord record_of_row(uint64 number) {
    HeapTuple row = SPI_tuptable->vals[number];
    TupleDesc desc = SPI_tuptable->tupdesc;
    bool null;
    return {
        .id = static_cast<uint64_t>(DatumGetInt64(SPI_getbinval(row, desc, 1, &null))),
        .action =
            static_cast<broker::CommandAction>(DatumGetInt16(SPI_getbinval(row, desc, 2, &null))),
        .client_id = pg::varlena_view(SPI_getbinval(row, desc, 3, &null)),
        .reason = static_cast<mqtt::ReasonCode>(DatumGetInt16(SPI_getbinval(row, desc, 4, &null))),
        .given_at = pg::wall_time(SPI_getbinval(row, desc, 5, &null))};
}

}  // namespace

// A row that commits late has a lower id than one that is gone already: so this never looks for ids
// above the last one.
Commands::Commands()
    : next_("SELECT id, action, client_id, reason, at FROM pgmqtt.command ORDER BY id LIMIT $1",
            {INT4OID}),
      remove_("DELETE FROM pgmqtt.command WHERE id = ANY ($1)", {INT8ARRAYOID}) {}

bool Commands::fetch(broker::BatchWriter& batch) {
    Datum limit = Int32GetDatum(static_cast<int32>(kRowsPerBatch));
    uint64 count = next_.execute(&limit, nullptr, true);
    fetched_.reserve(count);
    for (uint64 i = 0; i < count; ++i) {
        broker::CommandRecord record = record_of_row(i);
        fetched_.push_back(static_cast<int64_t>(record.id));
        batch.add(record);
    }
    return count == kRowsPerBatch;
}

void Commands::remove_fetched() {
    if (fetched_.empty()) return;
    pg::Columns done(fetched_.size(), {INT8OID});
    for (int64_t id : fetched_) done.add({Int64GetDatum(id)});
    remove_.execute(done.arrays());
}

pg::Status load_commands(const std::function<void(const broker::CommandRecord&)>& take) {
    return pg::transaction({.read_only = true}, [&take] {
        // Who has locked the table delays nobody else.
        if (!pg::try_lock(pg::table_id(*Commands::kTables), AccessShareLock)) return;
        SPI_execute("SELECT id, action, client_id, reason, at FROM pgmqtt.command ORDER BY id",
                    true, 0);
        for (uint64 i = 0; i < SPI_processed; ++i) take(record_of_row(i));
    });
}

}  // namespace pgmqtt::store
