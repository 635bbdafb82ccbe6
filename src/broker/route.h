// Scratch of one message while it finds its receivers. Reused for every message: routing allocates
// nothing once the vectors have grown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/input.h"
#include "broker/message.h"
#include "broker/pending.h"
#include "broker/session.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

// Where a message comes from.
struct Origin {
    const Session* session = nullptr;  // for No Local; null: SQL, or a will
    ByteView client_id;
    ByteView username;
    bool refusable = false;      // the publisher can be told no, and will be
    bool paced = false;          // its source waits for slow clients: congestion.cpp
    bool is_sys = false;         // $SYS, whose retained messages are our own
    bool has_properties = true;  // false: surely none, it came by 3.1 or 3.1.1
    std::optional<ByteView> encoded_properties;  // when they are at hand already
    base::WallTime received_at{};
    base::Input* input = nullptr;  // that shows the packet
    uint16_t packet_id = 0;        // of a client's PUBLISH with QoS 1 or 2
    bool dup = false;
};

// What became of it.
struct Routed {
    mqtt::ReasonCode reason = mqtt::ReasonCode::kSuccess;
    Pending::PublishId pending = Pending::kNone;
    bool must_wait = false;  // the publisher is acknowledged when `pending` is done
    bool waits_for_sink = false;
    bool stores_deliveries = false;  // for persistent sessions
};

inline constexpr uint32_t kNoLink = UINT32_MAX;

// A client session that gets the message, once, however many of its filters match.
struct Target {
    Session* session = nullptr;
    mqtt::Qos qos = mqtt::Qos::k0;  // the highest granted [MQTT-3.3.4-2]
    bool retain_as_published = false;
    uint64_t share = 0;              // ShareGroup::id, for whom it gets the message; 0: itself
    uint32_t identifiers = kNoLink;  // list in Route::links [MQTT-3.3.4-4]
};

struct IdentifierLink {
    uint32_t identifier = 0;
    uint32_t next = kNoLink;
};

// The bytes of the message for all receivers that differ in nothing but the packet identifier.
struct Variant {
    uint64_t route = 0;  // which message they are of
    std::string bytes;   // without the payload when that is shared
    size_t identifier_at = 0;
};

struct Route {
    // Payloads of this size or more are shared between outboxes instead of copied.
    static constexpr size_t kSharedPayload = 4096;
    // Payloads of this size or more are not copied, where their bytes can stay.
    static constexpr size_t kKeptPayload = 32 << 10;

    uint64_t number = 0;
    mqtt::Publish* publish = nullptr;  // qos, retain and packet_id change from receiver to receiver
    mqtt::Qos qos = mqtt::Qos::k0;     // as published
    bool retain = false;
    bool paced = false;
    base::Input* input = nullptr;  // that shows the payload; null: somebody else has it
    base::Now now{};
    base::WallTime received_at{};
    base::WallTime expires_at = base::WallTime::max();
    base::MonoTime expires = base::kNever;
    StoredAs stored;     // once a delivery has to be stored
    MessagePtr message;  // made when somebody has to keep it
    std::string properties;
    bool properties_encoded = false;
    uint64_t hashed = 0;  // the route whose topic_hash this is
    uint64_t topic_hash = 0;

    std::vector<Subscription*> matches;
    std::vector<Target> targets;
    std::vector<IdentifierLink> links;
    SinkRecord sink_record;
    bool sinks_must_confirm = false;
    Variant variants[12];
    Variant odd;  // for a receiver with subscription identifiers
};

}  // namespace pgmqtt::broker
