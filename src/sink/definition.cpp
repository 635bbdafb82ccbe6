#include "sink/definition.h"

extern "C" {
#include <executor/spi.h>
}

#include <utility>

#include "pg/datum.h"
#include "pg/log.h"
#include "pg/transaction.h"
#include "sink/sink_transaction.h"

namespace pgmqtt::sink {
namespace {

// A row whose parts are palloc'd, so that nothing is alive while they are read.
struct Row {
    Datum id, name, filter, statement, qos, retry, owner, search_path, enabled;
};

Row read_row(HeapTuple tuple, TupleDesc desc) {
    bool null;
    auto value = [&](int column) { return SPI_getbinval(tuple, desc, column, &null); };
    return {value(1), value(2), value(3), value(4), value(5),
            value(6), value(7), value(8), value(9)};
}

}  // namespace

void read_definitions(std::vector<Definition>& definitions) {
    constexpr const char* kSql =
        "SELECT id, name, filter, statement, qos, on_error OPERATOR(pg_catalog.=) 'retry', "
        "owner::pg_catalog.oid, search_path, enabled FROM pgmqtt.sink ORDER BY id";
    int result = SPI_execute(kSql, true, 0);
    if (result != SPI_OK_SELECT)
        elog(ERROR, "could not read pgmqtt.sink: %s", SPI_result_code_string(result));
    for (uint64 i = 0; i < SPI_processed; ++i) {
        Row row = read_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
        base::ByteView name = pg::varlena_view(row.name);
        base::ByteView filter = pg::utf8_view(row.filter);
        base::ByteView statement = pg::varlena_view(row.statement);
        base::ByteView search_path = pg::varlena_view(row.search_path);
        definitions.push_back({static_cast<uint32_t>(DatumGetInt32(row.id)), std::string(name),
                               std::string(filter), std::string(statement),
                               static_cast<mqtt::Qos>(DatumGetInt32(row.qos)),
                               DatumGetBool(row.retry), DatumGetObjectId(row.owner),
                               std::string(search_path), DatumGetBool(row.enabled)});
    }
}

std::vector<broker::SinkRoute> load_sink_routes() {
    std::vector<Definition> definitions;
    pg::value_or_throw(pg::transaction({.read_only = true}, [&] {
        limit_lock_waits();
        read_definitions(definitions);
    }));
    std::vector<broker::SinkRoute> routes;
    for (const Definition& definition : definitions) {
        if (!definition.enabled) continue;
        auto filter = broker::parse_sink_filter(definition.filter);
        if (!filter) {  // not by add_sink(): someone wrote the table
            pg::log(WARNING, "sink \"" + definition.name + "\": " + filter.error().message);
            continue;
        }
        routes.push_back({definition.id, std::move(filter->filter), definition.qos});
    }
    return routes;
}

}  // namespace pgmqtt::sink
