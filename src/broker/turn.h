// What one turn of the broker asks the world to do. The broker itself does nothing: it has no
// socket, no clock and no table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "broker/batch.h"

namespace pgmqtt::broker {

using base::ConnectionId;

enum class TransportKind : uint8_t { kTcp, kTls, kWs, kWss };

// The other end of a connection, as the transport saw it.
struct Peer {
    std::string address;
    uint16_t port = 0;
    bool loopback = false;
    TransportKind transport = TransportKind::kTcp;
};

// Asks whether this CONNECT may act as whom it says. Answer with Broker::authenticated().
struct AuthRequest {
    ConnectionId connection;
    Peer peer;
    std::string client_id;
    bool has_username = false;
    std::string username;
    bool has_password = false;
    std::string password;
};

struct CloseRequest {
    ConnectionId connection;
    // The one line for the log, escaped and cut: "client "x" (1.2.3.4:5): Protocol Error: ...".
    // Empty when the client asked for it or the server shuts down.
    std::string reason;
};

struct LogLine {
    enum class Level : uint8_t { kDebug, kInfo, kWarning };
    Level level = Level::kInfo;
    std::string text;  // already escaped and cut
};

struct Turn {
    std::vector<ConnectionId> dirty;    // have unsent output: Broker::outbox()
    std::vector<CloseRequest> close;    // send what is in the outbox, then close
    std::vector<ConnectionId> resumed;  // were paused and may be read again
    std::vector<AuthRequest> authenticate;
    std::vector<uint64_t> publishes_done;  // batches of source kCdc/kOutbox: see PublishSource
    std::vector<uint64_t> outbox_done;
    std::vector<uint64_t> commands_done;  // what came of them is in `store`, or was before
    BatchWriter store{BatchKind::kStore};
    BatchWriter sink{BatchKind::kSink};
    BatchWriter fetch{BatchKind::kFetch};  // to the store, behind `store`
    std::vector<LogLine> log;

    void clear();
};

}  // namespace pgmqtt::broker
