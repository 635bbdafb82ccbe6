// What must survive, as records from the broker to the store worker and back at the broker's start.
// One record per change, in order; writing one twice changes nothing, so that a batch can be sent
// again.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "broker/message_view.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

enum class StoreKind : uint8_t {
    kRetain = 1,   // message
    kUnretain,     // message.topic
    kSession,      // session_id, session: new or changed
    kSessionEnd,   // session_id: with all that belongs to it
    kSubscribe,    // session_id, subscription: new or changed
    kUnsubscribe,  // session_id, subscription.filter
    kMessage,      // message_id, message: queued for sessions; stored once for all of them
    kMessageEnd,   // message_id: no delivery needs it any more
    kDelivery,     // session_id, sequence, message_id, delivery: queued, or its state changed
    kDeliveryEnd,  // session_id, sequence: acknowledged, dropped or expired
    kReceived,     // session_id, packet_id: a QoS 2 PUBLISH came, its PUBREL has not
    kReleased,     // session_id, packet_id: its PUBREL came
};

// Section 4.1: the session state of a client whose session outlives its connection.
struct StoredSession {
    ByteView client_id;
    ByteView username;  // the role it belongs to; empty: anonymous
    base::WallTime created_at{};
    base::WallTime disconnected_at = base::WallTime::max();  // max: connected
    uint32_t expiry_interval = 0;                            // seconds; UINT32_MAX: never
    // A will that is still to be published; without one, `will.topic` is empty.
    MessageView will;
    uint32_t will_delay = 0;  // seconds
};

struct StoredSubscription {
    ByteView filter;  // with its `$share/name/` if it has one
    mqtt::Qos qos = mqtt::Qos::k0;
    bool no_local = false;
    bool retain_as_published = false;
    uint8_t retain_handling = 0;
    uint32_t identifier = 0;  // 0: none
};

// What stands between the server and the acknowledgement of one outgoing message.
enum class DeliveryState : uint8_t {
    kQueued = 1,        // may have been sent: a resend says DUP
    kReceivedByClient,  // PUBREC came: only PUBREL is sent again
};

struct StoredDelivery {
    DeliveryState state = DeliveryState::kQueued;
    bool sent = false;
    mqtt::Qos qos = mqtt::Qos::k1;
    bool retain = false;
    ByteView subscription_identifiers;  // four bytes each, big-endian
};

struct StoreRecord {
    StoreKind kind = StoreKind::kRetain;
    MessageView message{};
    uint64_t session_id = 0;  // given by the broker, never used again
    uint64_t message_id = 0;  // likewise
    // Counts the deliveries of a session from 1; (sequence - 1) mod 65535 + 1 is the packet
    // identifier, so a restart uses the same ones without writing them.
    uint64_t sequence = 0;
    uint16_t packet_id = 0;
    StoredSession session{};
    StoredSubscription subscription{};
    StoredDelivery delivery{};
};

void put_store_record(std::string& out, const StoreRecord& record);
// False on malformed bytes.
bool get_store_record(base::ByteReader& reader, StoreRecord& record);

}  // namespace pgmqtt::broker
