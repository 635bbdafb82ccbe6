#include "loadtest/postgres.h"

#include <poll.h>

#include "loadtest/clock.h"
#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {
namespace {

struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};

std::string first_line(const char* text) {
    std::string line(text);
    return line.substr(0, line.find('\n'));
}

constexpr Nanos kPatience = 30 * kSecond;
constexpr Nanos kRecovery = 5 * kSecond;

}  // namespace

Postgres::Postgres(const std::string& conninfo) : conninfo_(conninfo) {
    connect();
}

void Postgres::connect() {
    // Step by step: a notice that comes with the connection must find the processor.
    connection_.reset(PQconnectStart(conninfo_.c_str()));
    PGconn* connection = connection_.get();
    if (connection == nullptr) throw LoadError("--pg: no memory for a connection; free some");
    PQsetNoticeProcessor(
        connection, [](void*, const char*) {}, nullptr);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    Nanos end = monotonic_now() + kPatience;
    while (PQstatus(connection) != CONNECTION_BAD && status != PGRES_POLLING_OK &&
           status != PGRES_POLLING_FAILED) {
        pollfd polled{PQsocket(connection),
                      static_cast<short>(status == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};
        if (poll(&polled, 1, 100) > 0) status = PQconnectPoll(connection);
        if (monotonic_now() > end) throw LoadError("--pg: PostgreSQL does not answer for 30 s");
    }
    if (PQstatus(connection) != CONNECTION_OK)
        throw LoadError("--pg: " + first_line(PQerrorMessage(connection)) +
                        "; psql must be able to connect with the same string");
}

void Postgres::reconnect() {
    for (Nanos end = monotonic_now() + kRecovery;;) {
        PQreset(connection_.get());
        if (PQstatus(connection_.get()) == CONNECTION_OK) return;
        if (monotonic_now() >= end)
            throw LoadError("--pg: " + first_line(PQerrorMessage(connection_.get())));
        poll(nullptr, 0, 200);
    }
}

Postgres::Rows Postgres::query(const std::string& sql, const std::vector<std::string>& parameters) {
    std::vector<const char*> values;
    for (const std::string& parameter : parameters) values.push_back(parameter.c_str());
    // Without parameters several statements may stand in one text.
    std::unique_ptr<PGresult, Clear> result(
        values.empty()
            ? PQexec(connection_.get(), sql.c_str())
            : PQexecParams(connection_.get(), sql.c_str(), static_cast<int>(values.size()), nullptr,
                           values.data(), nullptr, nullptr, 0));
    ExecStatusType status = PQresultStatus(result.get());
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        throw LoadError(sql.substr(0, 80) + ": " + first_line(PQerrorMessage(connection_.get())) +
                        "; run it in psql to see more");
    Rows rows(static_cast<size_t>(PQntuples(result.get())));
    for (size_t i = 0; i < rows.size(); ++i)
        for (int j = 0; j < PQnfields(result.get()); ++j)
            rows[i].emplace_back(PQgetvalue(result.get(), static_cast<int>(i), j));
    return rows;
}

std::string Postgres::value(const std::string& sql, const std::vector<std::string>& parameters) {
    Rows rows = query(sql, parameters);
    if (rows.size() != 1 || rows[0].size() != 1)
        throw LoadError(sql.substr(0, 80) + ": one value was expected; report this as a bug");
    return rows[0][0];
}

int worker_pid(Postgres& postgres, const std::string& backend_type) {
    auto rows =
        postgres.query("SELECT pid FROM pg_stat_activity WHERE backend_type = $1", {backend_type});
    return rows.empty() ? 0 : std::stoi(rows[0][0]);
}

}  // namespace pgmqtt::loadtest
