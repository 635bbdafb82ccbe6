// sink: JSON is published, the rows are looked at.
#include <poll.h>

#include "loadtest/ending.h"
#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/postgres.h"
#include "loadtest/roles.h"
#include "loadtest/test_table.h"

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

// QoS 0 is answered by nobody: rows are waited for until none has come for `seconds`.
void wait_for_rows(Postgres& postgres, const TestTable& table, uint64_t wanted, double seconds,
                   Found& found) {
    Patience patience(from_seconds(seconds));
    found = look(postgres, table);
    while (found.distinct < wanted && patience.lasts(found.rows)) {
        poll(nullptr, 0, 20);
        found = look(postgres, table);
    }
}

void count_rows(RunResult& result, const Options& options, const Found& found, uint64_t wanted) {
    Counters& c = result.counters;
    c.expected = wanted;
    c.received = found.rows;
    c.duplicated = found.rows - found.distinct;
    c.lost = wanted > found.distinct ? wanted - found.distinct : 0;
    result.figures.push_back({"rows", static_cast<double>(found.rows), "rows"});
    if (c.lost != 0 && is_stopping() && options.qos == 0) {
        result.warnings.push_back(std::to_string(c.lost) +
                                  " messages were no rows yet when the run was interrupted");
    } else if (c.lost != 0) {
        result.errors.push_back(std::to_string(c.lost) +
                                (options.qos == 0 ? " messages" : " acknowledged messages") +
                                " are no rows; see pgmqtt.dead_letter, or is --port not that of "
                                "this server?");
    }
    if (c.duplicated != 0)
        result.errors.push_back(std::to_string(c.duplicated) + " rows are there twice");
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
    result.operation = "row";
    // What was acknowledged is there already; only QoS 0 may take its time.
    uint64_t wanted = options.qos == 0 ? result.counters.sent : result.counters.acknowledged;
    Found found;
    try {
        wait_for_rows(postgres, table, wanted, options.qos == 0 ? options.drain : 0, found);
        count_rows(result, options, found, wanted);
    } catch (const LoadError& error) {
        end_early(result, error.what());
        result.errors.emplace_back("the rows could not be counted");
    }
    clean_up_after(result, [&] { table.drop(); });
    return result;
}

}  // namespace pgmqtt::loadtest
