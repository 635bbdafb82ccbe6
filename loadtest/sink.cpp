// sink: JSON is published, the rows are looked at.
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/postgres.h"
#include "loadtest/roles.h"
#include "loadtest/test_table.h"

#include <poll.h>

namespace pgmqtt::loadtest {
namespace {

struct Found {
    uint64_t rows = 0;
    uint64_t distinct = 0;
};

Found look(Postgres& postgres, const TestTable& table) {
    auto row = postgres.query("SELECT count(*), count(DISTINCT (publisher, sequence)) FROM " +
                              table.name())[0];
    return {std::stoull(row[0]), std::stoull(row[1])};
}

// QoS 0 is answered by nobody: rows are waited for until none has come for `patience` seconds.
Found wait_for_rows(Postgres& postgres, const TestTable& table, uint64_t wanted, double patience) {
    Found found = look(postgres, table);
    Nanos progress = monotonic_now();
    while (found.distinct < wanted && monotonic_now() - progress < from_seconds(patience)) {
        poll(nullptr, 0, 20);
        Found now = look(postgres, table);
        if (now.rows != found.rows) progress = monotonic_now();
        found = now;
    }
    return found;
}

}  // namespace

RunResult run_sink(const Options& given) {
    if (given.pg.empty())
        throw LoadError("sink needs --pg, a libpq connection string, to look at the rows");
    Options options = given;
    options.topology = Topology::kNone;
    Postgres postgres(options.pg);
    TestTable table(postgres, options.table, "publisher bigint, sequence bigint, sent_ns bigint");
    table.add_sink(filter_of(options, std::nullopt),
                   "INSERT INTO " + table.name() +
                       " (publisher, sequence, sent_ns) SELECT (json->>'p')::bigint, "
                       "(json->>'s')::bigint, (json->>'t')::bigint FROM msg");
    RunResult result = run_traffic(options);
    Counters& c = result.counters;
    // What was acknowledged is there already; only QoS 0 may take its time.
    uint64_t wanted = options.qos == 0 ? c.sent : c.acknowledged;
    Found found = wait_for_rows(postgres, table, wanted, options.qos == 0 ? options.drain : 0);
    c.expected = wanted;
    c.received = found.rows;
    c.duplicated = found.rows - found.distinct;
    c.lost = wanted > found.distinct ? wanted - found.distinct : 0;
    result.operation = "row";
    result.figures.push_back({"rows", static_cast<double>(found.rows), "rows"});
    if (c.lost != 0)
        result.errors.push_back(std::to_string(c.lost) +
                                " acknowledged messages are no rows; see pgmqtt.dead_letter");
    if (c.duplicated != 0)
        result.errors.push_back(std::to_string(c.duplicated) + " rows are there twice");
    return result;
}

}  // namespace pgmqtt::loadtest
