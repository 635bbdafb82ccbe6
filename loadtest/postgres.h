// libpq, one connection.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <string>
#include <vector>

namespace pgmqtt::loadtest {

class Postgres {
   public:
    // Throws LoadError that says what to check.
    explicit Postgres(const std::string& conninfo);

    // A new connection in place of this one, which broke; waits a few seconds for a server that
    // recovers.
    void reconnect();

    using Rows = std::vector<std::vector<std::string>>;
    Rows query(const std::string& sql, const std::vector<std::string>& parameters = {});
    // The single value of a query that returns one.
    std::string value(const std::string& sql, const std::vector<std::string>& parameters = {});

   private:
    void connect();

    struct Close {
        void operator()(PGconn* connection) const { PQfinish(connection); }
    };
    std::string conninfo_;
    std::unique_ptr<PGconn, Close> connection_;
};

// Of "pgmqtt broker" and the like; 0 if there is none.
int worker_pid(Postgres& postgres, const std::string& backend_type);

}  // namespace pgmqtt::loadtest
