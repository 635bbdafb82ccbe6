#include "loadtest/server_watch.h"

#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace pgmqtt::loadtest {

namespace {

// The server gives up by itself, too: an abandoned query must not pile up behind a lock.
constexpr const char* kOptions =
    "-c statement_timeout=1000 -c lock_timeout=200 -c default_transaction_read_only=on -c jit=off "
    "-c max_parallel_workers_per_gather=0";

// The columns of pg_stat_wal change between versions, hence the way through jsonb: a column that is
// not there is NULL. NULL sizes: the schema or a table has just gone.
constexpr const char* kCounters = R"(
SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
       w->>'wal_records', w->>'wal_bytes', w->>'wal_sync',
       (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
         WHERE relnamespace = to_regnamespace('pgmqtt') AND relkind IN ('r', 'm')),
       pg_database_size(current_database()),
       (SELECT count(*) FROM pg_stat_activity
         WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()),
       (SELECT wait_event_type || ':' || wait_event || ' x' || count(*) FROM pg_stat_activity
         WHERE wait_event_type NOT IN ('Activity', 'Client', 'Timeout', 'Extension')
         GROUP BY wait_event_type, wait_event ORDER BY count(*) DESC, 1 LIMIT 1)
  FROM (SELECT to_jsonb(s) AS w FROM pg_stat_wal s) AS wal)";

constexpr const char* kBackends =
    "SELECT pid, backend_type FROM pg_stat_activity WHERE pid <> pg_backend_pid()";

uint64_t number_at(const PGresult* result, int column) {
    return std::strtoull(PQgetvalue(result, 0, column), nullptr, 10);
}

DatabaseSample counters_of(const PGresult* result) {
    DatabaseSample sample;
    sample.commits = number_at(result, 0);
    sample.wal_records = number_at(result, 1);
    sample.wal_bytes = number_at(result, 2);
    if (!PQgetisnull(result, 0, 3)) sample.wal_syncs = number_at(result, 3);
    sample.table_bytes = number_at(result, 4);
    sample.database_bytes = number_at(result, 5);
    sample.active_backends = static_cast<uint32_t>(number_at(result, 6));
    sample.top_wait_event = PQgetvalue(result, 0, 7);
    return sample;
}

std::string without_newline(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

}  // namespace

ServerWatch::ServerWatch(std::string conninfo, int stop_fd)
    : conninfo_(std::move(conninfo)), stop_fd_(stop_fd) {}

ServerWatch::~ServerWatch() {
    if (connection_) PQfinish(connection_);
}

void ServerWatch::disconnect(std::string why) {
    error_ = std::move(why);
    PQfinish(connection_);
    connection_ = nullptr;
}

bool ServerWatch::wait(short events, Deadline deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd polled[2] = {{PQsocket(connection_), events, 0}, {stop_fd_, POLLIN, 0}};
    return poll(polled, 2, static_cast<int>(left.count())) > 0 && polled[1].revents == 0;
}

bool ServerWatch::connect(Deadline deadline) {
    // What comes later wins, except over dbname, which is expanded where it stands.
    const char* const keywords[] = {"dbname", "application_name", "options", nullptr};
    const char* const values[] = {conninfo_.c_str(), "pgmqtt loadtest sampler", kOptions, nullptr};
    connection_ = PQconnectStartParams(keywords, values, 1);
    if (!connection_) return false;
    // What the server remarks is not of the run.
    PQsetNoticeProcessor(
        connection_, [](void*, const char*) {}, nullptr);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    while (PQstatus(connection_) != CONNECTION_BAD) {
        const bool reading = status == PGRES_POLLING_READING;
        if (!wait(reading ? POLLIN : POLLOUT, deadline)) {
            disconnect("no connection to PostgreSQL in time");
            return false;
        }
        status = PQconnectPoll(connection_);
        if (status == PGRES_POLLING_OK) return true;
        if (status == PGRES_POLLING_FAILED) break;
    }
    disconnect(without_newline(PQerrorMessage(connection_)));
    return false;
}

ServerWatch::Result ServerWatch::ask(const char* sql, Deadline deadline) {
    Result answer(nullptr, PQclear);
    if (PQsendQuery(connection_, sql) != 1) {
        disconnect(without_newline(PQerrorMessage(connection_)));
        return answer;
    }
    while (true) {
        while (PQisBusy(connection_)) {
            if (!wait(POLLIN, deadline)) {
                disconnect("PostgreSQL did not answer in time");
                return Result(nullptr, PQclear);
            }
            if (PQconsumeInput(connection_) != 1) {
                disconnect(without_newline(PQerrorMessage(connection_)));
                return Result(nullptr, PQclear);
            }
        }
        Result next(PQgetResult(connection_), PQclear);
        if (!next) break;
        answer = std::move(next);
    }
    if (answer && PQresultStatus(answer.get()) != PGRES_TUPLES_OK) {
        error_ = without_newline(PQresultErrorMessage(answer.get()));
        answer.reset();
    }
    return answer;
}

std::optional<ServerState> ServerWatch::look(std::chrono::milliseconds patience) {
    const Deadline deadline = std::chrono::steady_clock::now() + patience;
    if (connection_ && PQstatus(connection_) != CONNECTION_OK)
        disconnect("the connection was lost");
    if (!connection_ && !connect(deadline)) return std::nullopt;
    const Result backends = ask(kBackends, deadline);
    if (!backends) return std::nullopt;
    const Result counters = ask(kCounters, deadline);
    if (!counters || PQntuples(counters.get()) != 1) return std::nullopt;
    ServerState state;
    state.database = counters_of(counters.get());
    for (int row = 0; row < PQntuples(backends.get()); ++row) {
        state.backends.push_back(
            {std::atoi(PQgetvalue(backends.get(), row, 0)), PQgetvalue(backends.get(), row, 1)});
    }
    return state;
}

}  // namespace pgmqtt::loadtest
