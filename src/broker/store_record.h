// What must survive, as records from the broker to the store worker and back at the broker's start.
// One record per change, in order; writing one twice changes nothing, so that a batch can be sent
// again.
//
// The queue is a log. Messages, deliveries of them and QoS 2 identifiers are only ever added to it;
// their ends are added, too. Every message and every kReceived has an id that grows, so the log is
// in the order of ids, and what the broker does not need up to some id any more can be truncated:
// see kCopy and kMoved.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "broker/message_view.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

enum class StoreKind : uint8_t {
    kRetain = 1,   // message, replaces
    kUnretain,     // message.topic
    kSession,      // session_id, session: new or changed
    kSessionEnd,   // session_id: with all that belongs to it
    kSubscribe,    // session_id, subscription: new or changed
    kUnsubscribe,  // session_id, subscription.filter
    // message_id, durability, message: queued for sessions; stored once for all of them. The
    // deliveries that need it follow in the same batch; without any it is not written.
    kMessage,
    // message_id, source_id, durability: the message of source_id is stored once more, under this
    // id. Deliveries that move to it follow in the same batch.
    kCopy,
    // session_id, sequence, message_id, durability, delivery: queued, its state changed, or moved
    // to a copy. The durability is that of the message, also below.
    kDelivery,
    kDeliveryEnd,  // session_id, sequence, message_id, durability: acknowledged, dropped or expired
    // session_id, packet_id, message_id (an id of its own): a QoS 2 PUBLISH came, its PUBREL has
    // not. Again with a larger id: moved.
    kReceived,
    kReleased,  // session_id, packet_id, message_id: its PUBREL came
    // message_id, durability: the answer to MoveRecord. In this log nothing refers to ids up to
    // this one any more.
    kMoved,
};

// pgmqtt.durability: what an acknowledgement of QoS 1 or 2 promises. kDurable and kAsync share one
// log, kUnlogged has another.
enum class Durability : uint8_t {
    kDurable = 1,  // committed and flushed
    kAsync,        // committed, and the operating system has it
    kUnlogged,     // written to tables that survive a clean restart only
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
    // Of its message, so that the queue can be counted and expire without reading it.
    uint32_t bytes = 0;
    base::WallTime expires_at = base::WallTime::max();  // max: never
};

struct StoreRecord {
    StoreKind kind = StoreKind::kRetain;
    MessageView message{};
    bool replaces = true;     // the topic may have had another; false: there is none to be removed
    uint64_t session_id = 0;  // given by the broker, never used again
    uint64_t message_id = 0;  // likewise; grows
    uint64_t source_id = 0;
    Durability durability = Durability::kDurable;
    // Counts the deliveries of a session from 1; (sequence - 1) mod 65535 + 1 is the packet
    // identifier, so a restart uses the same ones without writing them.
    uint64_t sequence = 0;
    uint16_t packet_id = 0;
    StoredSession session{};
    StoredSubscription subscription{};
    StoredDelivery delivery{};
};

void put_durability(std::string& out, Durability durability);
bool get_durability(base::ByteReader& reader, Durability& durability);

void put_store_record(std::string& out, const StoreRecord& record);
// False on malformed bytes.
bool get_store_record(base::ByteReader& reader, StoreRecord& record);

}  // namespace pgmqtt::broker
