// The rows of pgmqtt.sink.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <string>
#include <vector>

#include "broker/broker.h"
#include "broker/sink_filter.h"
#include "mqtt/packet.h"

namespace pgmqtt::sink {

// Text is in the server's encoding, but for `filter`.
struct Definition {
    uint32_t id = 0;
    std::string name;
    std::string filter;  // UTF-8, with its captures
    std::string statement;
    mqtt::Qos qos = mqtt::Qos::k1;
    bool retry = false;  // on_error = 'retry'
    Oid owner = InvalidOid;
    std::string search_path;
    bool enabled = true;

    bool operator==(const Definition&) const = default;
};

// Appends all of them in order of id. Inside a transaction with SPI connected; may raise.
void read_definitions(std::vector<Definition>& definitions);

// What the broker must know. Runs a transaction of its own; throws pg::Raised.
std::vector<broker::SinkRoute> load_sink_routes();

}  // namespace pgmqtt::sink
