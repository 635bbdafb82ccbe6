// What the broker must know of the settings. Plain values: the GUC table lives in pg/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "broker/store_record.h"

namespace pgmqtt::broker {

enum class QueuePolicy : uint8_t { kDropOldest, kDropNewest, kReject, kDisconnect };

struct Config {
    uint32_t max_packet_size = 1 << 20;     // bytes, a whole packet
    uint16_t max_inflight = 100;            // server's Receive Maximum; cap of the outgoing window
    uint32_t max_queued_messages = 100000;  // per session
    uint64_t max_queued_bytes = 100ull << 20;  // per session
    QueuePolicy queue_policy = QueuePolicy::kDropOldest;
    size_t client_buffer = 256 << 10;  // bytes of unsent output before QoS 0 is dropped
    uint16_t max_keep_alive = 65535;   // seconds
    // Seconds. What a session may outlive its connection; 3.x sessions that are not clean get it.
    uint32_t max_session_expiry = 30 * 24 * 3600;
    uint32_t connect_timeout_ms = 10000;
    uint32_t max_subscriptions = 1000;  // per session
    uint32_t max_retained = 1000000;
    uint64_t max_retained_bytes = 1ull << 30;
    uint16_t topic_alias_maximum = 64;    // what we accept from a client
    uint64_t max_memory = 384ull << 20;   // bytes of messages, output and what is pending
    uint32_t sys_interval_ms = 10000;     // between publishes to $SYS; 0: never
    size_t max_pending_bytes = 32 << 20;  // waiting for store or sink before publishers are paused
    Durability durability = Durability::kDurable;  // where no rule says otherwise
    // What a 5.0 publisher waits for the store before it is told to try again; 0: for ever.
    uint32_t store_patience_ms = 30000;
};

}  // namespace pgmqtt::broker
