#include "workers/broker_settings.h"

#include <string>

#include "pg/settings.h"

namespace pgmqtt::workers {

using pg::settings;

broker::Config broker_config() {
    constexpr uint64_t kKilobyte = 1024;
    broker::Config config;
    config.max_packet_size = static_cast<uint32_t>(settings.max_packet_size);
    config.max_inflight = static_cast<uint16_t>(settings.max_inflight);
    config.max_queued_messages = static_cast<uint32_t>(settings.max_queued_messages);
    config.max_queued_bytes = static_cast<uint64_t>(settings.max_queued_bytes) * kKilobyte;
    switch (settings.queue_policy) {
        case pg::kQueueDropNewest:
            config.queue_policy = broker::QueuePolicy::kDropNewest;
            break;
        case pg::kQueueReject:
            config.queue_policy = broker::QueuePolicy::kReject;
            break;
        case pg::kQueueDisconnect:
            config.queue_policy = broker::QueuePolicy::kDisconnect;
            break;
        default:
            config.queue_policy = broker::QueuePolicy::kDropOldest;
    }
    config.durability = static_cast<broker::Durability>(settings.durability);
    config.client_buffer = static_cast<size_t>(settings.client_buffer);
    config.max_keep_alive = static_cast<uint16_t>(settings.max_keep_alive);
    config.connect_timeout_ms = static_cast<uint32_t>(settings.connect_timeout);
    config.max_session_expiry = static_cast<uint32_t>(settings.max_session_expiry);
    config.max_subscriptions = static_cast<uint32_t>(settings.max_subscriptions);
    config.max_retained = static_cast<uint32_t>(settings.max_retained);
    config.max_retained_bytes = static_cast<uint64_t>(settings.max_retained_bytes) * kKilobyte;
    config.store_patience_ms = static_cast<uint32_t>(settings.store_timeout);
    config.sys_interval_ms = static_cast<uint32_t>(settings.sys_interval);
    // A quarter is for input: see network_limits().
    config.max_memory = static_cast<uint64_t>(settings.max_memory) * kKilobyte / 4 * 3;
    // What waits for store and sinks may take an eighth of the broker's memory.
    config.max_pending_bytes = static_cast<size_t>(settings.max_memory) * kKilobyte / 8;
    return config;
}

net::Limits network_limits() {
    net::Limits limits;
    limits.max_connections = static_cast<uint32_t>(settings.max_connections);
    limits.read_budget = static_cast<size_t>(settings.client_buffer);
    // 5: the fixed header of the largest packet.
    limits.max_input = static_cast<size_t>(settings.max_packet_size) + 5;
    // At worst twice as much is buffered, which makes it a quarter.
    limits.max_input_total = static_cast<size_t>(settings.max_memory) * 1024 / 8;
    return limits;
}

std::vector<net::ListenAddress> listen_addresses() {
    std::vector<net::ListenAddress> addresses;
    if (settings.port == 0) return addresses;
    std::string list = settings.listen_addresses;
    for (size_t start = 0; start <= list.size();) {
        size_t comma = std::min(list.find(',', start), list.size());
        std::string host = list.substr(start, comma - start);
        size_t first = host.find_first_not_of(" \t");
        if (first != std::string::npos) {
            host = host.substr(first, host.find_last_not_of(" \t") - first + 1);
            addresses.push_back({host, static_cast<uint16_t>(settings.port)});
        }
        start = comma + 1;
    }
    return addresses;
}

}  // namespace pgmqtt::workers
