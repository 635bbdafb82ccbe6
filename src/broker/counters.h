// What pgmqtt.stat_broker shows. Plain integers: one process writes, shared memory mirrors.
#pragma once

#include <cstdint>

namespace pgmqtt::broker {

// X(name): counters only grow; gauges are what is true now.
#define PGMQTT_BROKER_COUNTERS(X)                                                      \
    X(accepted)            /* connections, whatever came of them */                    \
    X(connects)            /* CONNACK success sent */                                  \
    X(connects_refused)    /* CONNACK with an error */                                 \
    X(disconnects)         /* by the client's DISCONNECT */                            \
    X(connections_lost)    /* transport closed without DISCONNECT */                   \
    X(takeovers)           /* [MQTT-3.1.4-3] */                                        \
    X(keep_alive_timeouts) /* [MQTT-3.1.2-22] */                                       \
    X(malformed)           /* closed for a malformed packet or protocol error */       \
    X(packets_in)                                                                      \
    X(packets_out)                                                                     \
    X(bytes_in)                                                                        \
    X(bytes_out)                                                                       \
    X(publishes_in)                                                                    \
    X(publishes_out)                                                                   \
    X(publish_bytes_in)  /* of payloads */                                             \
    X(publish_bytes_out) /* of payloads */                                             \
    X(publishes_from_sql)                                                              \
    X(dropped_slow_qos0)  /* outbox over client_buffer */                              \
    X(dropped_queue_full) /* max_queued_messages or max_queued_bytes */                \
    X(dropped_too_large)  /* over the receiver's Maximum Packet Size */                \
    X(dropped_expired)                                                                 \
    X(dropped_retained_limit) /* max_retained or max_retained_bytes */                 \
    X(dropped_missing)        /* somebody removed the message from the store */        \
    X(publishes_overdue)      /* waited too long for the store: answered with 0x97 */  \
    X(publishes_refused)      /* negative PUBACK, or 3.1.1 acknowledged and dropped */ \
    X(sessions_expired)       /* [MQTT-4.1.0-2] */                                     \
    X(pauses)                 /* times a publisher was paused for back-pressure */

#define PGMQTT_BROKER_GAUGES(X)                             \
    X(clients)                                              \
    X(clients_maximum)                                      \
    X(sessions) /* of clients that are connected or were */ \
    X(subscriptions)                                        \
    X(shared_subscriptions) /* of those */                  \
    X(retained)                                             \
    X(retained_bytes)                                       \
    X(queued)                                               \
    X(queued_bytes)                                         \
    X(inflight)                                             \
    X(pending) /* publishes waiting for store or sink */    \
    X(memory)  /* what counts against max_memory */         \
    X(memory_maximum)

struct Counters {
#define PGMQTT_FIELD(name) uint64_t name = 0;
    PGMQTT_BROKER_COUNTERS(PGMQTT_FIELD)
    PGMQTT_BROKER_GAUGES(PGMQTT_FIELD)
#undef PGMQTT_FIELD
};

}  // namespace pgmqtt::broker
