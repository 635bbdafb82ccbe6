// What pgmqtt.clients shows of one client, on its way from the broker to the backend that asks.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/time.h"
#include "broker/turn.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

struct ClientRecord {
    base::ByteView client_id;
    base::ByteView username;  // empty: anonymous
    base::ByteView address;
    uint16_t port = 0;
    TransportKind transport = TransportKind::kTcp;
    mqtt::Version version = mqtt::Version::k5;
    base::WallTime connected_at{};
    base::WallTime last_packet_at{};
    uint16_t keep_alive = 0;  // seconds
    bool clean_start = true;
    uint32_t session_expiry = 0;  // seconds; Session::kNeverExpires: never
    uint64_t subscriptions = 0;
    uint64_t inflight_out = 0;
    uint64_t inflight_in = 0;
    uint64_t queued = 0;
    uint64_t queued_bytes = 0;
    uint64_t messages_in = 0;
    uint64_t messages_out = 0;
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
    uint64_t dropped = 0;
    bool throttled = false;
};

// Appends it.
void encode(const ClientRecord& record, std::string& bytes);
// False when that is not what encode() wrote. The record's views are into `bytes`.
bool decode(base::ByteView bytes, ClientRecord& record);

}  // namespace pgmqtt::broker
