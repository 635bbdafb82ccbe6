#include "store/commands.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <executor/spi.h>
}

#include "pg/datum.h"
#include "store/columns.h"

namespace pgmqtt::store {
namespace {

constexpr uint64 kRowsPerBatch = 1000;

}  // namespace

// A row that commits late has a lower id than one that is gone already: so this never looks for ids
// above the last one.
Commands::Commands()
    : next_("SELECT id, action, client_id, reason FROM pgmqtt.command ORDER BY id LIMIT $1",
            {INT4OID}),
      remove_("DELETE FROM pgmqtt.command WHERE id = ANY ($1)", {INT8ARRAYOID}) {}

bool Commands::fetch(broker::BatchWriter& batch) {
    Datum limit = Int32GetDatum(static_cast<int32>(kRowsPerBatch));
    uint64 count = next_.execute(&limit, nullptr, true);
    fetched_.reserve(count);
    for (uint64 i = 0; i < count; ++i) {
        HeapTuple row = SPI_tuptable->vals[i];
        TupleDesc desc = SPI_tuptable->tupdesc;
        bool null;
        fetched_.push_back(DatumGetInt64(SPI_getbinval(row, desc, 1, &null)));
        broker::CommandRecord record;
        record.action =
            static_cast<broker::CommandAction>(DatumGetInt16(SPI_getbinval(row, desc, 2, &null)));
        record.client_id = pg::varlena_view(SPI_getbinval(row, desc, 3, &null));
        record.reason =
            static_cast<mqtt::ReasonCode>(DatumGetInt16(SPI_getbinval(row, desc, 4, &null)));
        batch.add(record);
    }
    return count == kRowsPerBatch;
}

void Commands::remove_fetched() {
    if (fetched_.empty()) return;
    Columns done(fetched_.size(), {INT8OID});
    for (int64_t id : fetched_) done.add({Int64GetDatum(id)});
    remove_.execute(done.arrays());
}

}  // namespace pgmqtt::store
