// Asks a PostgreSQL server what it has done, over a connection of its own that never waits for
// long.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/sample.h"

struct pg_conn;
struct pg_result;

namespace pgmqtt::loadtest {

struct Backend {
    int pid = 0;
    std::string type;  // pg_stat_activity.backend_type
};

struct ServerState {
    DatabaseSample database;
    std::vector<Backend> backends;  // all processes of the server but the one that answers
};

class ServerWatch {
   public:
    // `stop_fd` becomes readable when waiting is to end at once.
    ServerWatch(std::string conninfo, int stop_fd);
    ~ServerWatch();
    ServerWatch(const ServerWatch&) = delete;
    ServerWatch& operator=(const ServerWatch&) = delete;

    // None when the server did not answer in time: error() says why. The next call tries again,
    // with a new connection where that is needed.
    std::optional<ServerState> look(std::chrono::milliseconds patience);
    const std::string& error() const { return error_; }

   private:
    using Deadline = std::chrono::steady_clock::time_point;
    using Result = std::unique_ptr<pg_result, void (*)(pg_result*)>;

    bool connect(Deadline deadline);
    Result ask(const char* sql, Deadline deadline);
    bool wait(short events, Deadline deadline);
    void disconnect(std::string why);

    std::string conninfo_;
    int stop_fd_;
    pg_conn* connection_ = nullptr;
    std::string error_;
};

}  // namespace pgmqtt::loadtest
