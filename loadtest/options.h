// The command line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loadtest/client.h"

namespace pgmqtt::loadtest {

enum class Topology : uint8_t {
    kPairs,  // subscriber j hears publisher j mod publishers
    kAll,    // every subscriber hears every publisher: fan-in, fan-out and all between
    kNone,   // nobody subscribes
};

struct Options {
    std::string mode;
    std::string label;

    // The broker
    std::string host = "127.0.0.1";
    std::string port = "1883";
    std::string username;
    std::string password;
    int broker_pid = 0;
    std::string pg;  // libpq connection string

    // The clients
    ClientKind client = ClientKind::kRaw;
    int protocol = 5;
    bool persistent = false;
    uint32_t threads = 1;
    std::string client_prefix = "lt";

    // The traffic
    double duration = 10;
    double warmup = 2;
    double drain = 10;  // most seconds that the last messages may take
    uint32_t publishers = 1;
    uint32_t subscribers = 1;
    Topology topology = Topology::kPairs;
    uint8_t qos = 0;
    size_t payload_size = 64;
    uint32_t topics = 1;  // per publisher
    std::string topic_prefix = "loadtest";
    bool retain = false;
    uint32_t window = 0;      // end to end, per publisher; 0: 1000 with QoS 0, else 100
    uint32_t ack_window = 0;  // 0: as the window
    double rate = 0;          // messages a second of all publishers
    uint32_t max_inflight = 100000;

    // Single modes
    uint64_t messages = 100000;
    uint64_t sessions = 10;
    uint64_t filters = 0;
    uint64_t retained = 0;
    uint64_t connections = 1000;
    uint32_t concurrency = 50;
    bool subscribe = false;
    bool reconnect = false;
    uint32_t report_every = 60;
    uint32_t rows_per_transaction = 1;
    std::string table = "loadtest_row";

    // compare
    std::string peer_host;
    std::string peer_port;
    int peer_pid = 0;
    std::string peer_label = "peer";
    uint32_t rounds = 5;
    // The mode and its options, behind --, with what stood before -- and is not of compare itself.
    std::vector<std::string> compared;

    // Output
    std::string json;
    std::string html;
    bool quiet = false;

    uint32_t run = 0;  // number of this run, in client identifiers, topics and payloads

    uint32_t end_to_end_window() const { return window != 0 ? window : qos == 0 ? 1000 : 100; }
    uint32_t acknowledgement_window() const {
        return ack_window != 0 ? ack_window : end_to_end_window();
    }
};

// Throws LoadError with advice. --help is not for it.
Options parse_options(const std::vector<std::string>& arguments);

// Without a mode: the list of modes.
std::string help_text(const std::string& mode);

// Every option that this mode knows, as in force.
std::vector<std::pair<std::string, std::string>> describe(const Options& options);

}  // namespace pgmqtt::loadtest
