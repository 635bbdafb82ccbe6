// The pgmqtt.* settings (GUCs): one table defines them, README's table is checked against it.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::pg {

enum AllowAnonymous { kAnonymousOff, kAnonymousLocal, kAnonymousOn };
enum DurabilitySetting { kDurable = 1, kAsync, kUnlogged };  // as broker::Durability
enum QueuePolicySetting { kQueueDropOldest, kQueueDropNewest, kQueueReject, kQueueDisconnect };

// The current values. Written by the GUC machinery only; strings belong to it and may change at a
// reload, so copy what must last.
struct Settings {
    char* database;
    char* listen_addresses;
    int port;             // 0 = off
    int allow_anonymous;  // AllowAnonymous
    int max_connections;  // restart
    int max_packet_size;  // bytes
    int max_inflight;
    int max_queued_messages;
    int max_queued_bytes;  // kB
    int queue_policy;      // QueuePolicySetting
    int client_buffer;     // bytes
    int max_memory;        // kB
    int tick;              // ms
    int cdc_tick;          // ms
    int cdc_batch_size;
    int max_keep_alive;      // s
    int max_session_expiry;  // s
    int connect_timeout;     // ms
    int shutdown_timeout;    // ms
    int max_subscriptions;
    int max_retained;
    int max_retained_bytes;  // kB
    int store_timeout;       // ms; 0 = for ever
    int sys_interval;        // ms; 0 = off
    int durability;          // DurabilitySetting
    bool log_connections;
    int log_level;  // elog level
};

extern Settings settings;

// In _PG_init: defines all of them and reserves the prefix.
void define_settings();

}  // namespace pgmqtt::pg
