// One client connection, from accept to close.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/outbox.h"
#include "base/time.h"
#include "broker/deadline_heap.h"
#include "broker/fifo.h"
#include "broker/message.h"
#include "broker/outgoing_aliases.h"
#include "broker/turn.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

struct Session;

enum class Phase : uint8_t {
    kAwaitingConnect,
    kAuthenticating,  // CONNECT was good, the answer of authenticated() is outstanding
    kStoring,         // has its session; CONNACK waits until that is stored
    kConnected,
    kClosing,  // in Turn::close; nothing more is read or sent
};

// Why a connection is not read. It is read again when none is left.
enum PauseReason : uint8_t {
    kPausedForAuthentication = 1,
    kPausedForAcknowledgements = 2,  // 3.x publishers know no Receive Maximum
    kPausedForPending = 4,           // max_pending_bytes
    kPausedForOutput = 8,            // asks for answers and does not read them
    kPausedForMemory = 16,           // max_memory
};

// A PUBACK or PUBREC that is owed. They leave in the order of the PUBLISHes [MQTT-4.6.0-2]
// [MQTT-4.6.0-3].
struct OwedAck {
    mqtt::PacketType type = mqtt::PacketType::kPuback;
    uint16_t packet_id = 0;
    bool ready = false;
    mqtt::ReasonCode reason = mqtt::ReasonCode::kSuccess;
    std::string reason_string{};
};

// What went over one connection.
struct Traffic {
    uint64_t messages_in = 0;  // PUBLISHes
    uint64_t messages_out = 0;
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
};

struct Connection {
    ConnectionId id;
    Peer peer;
    Phase phase = Phase::kAwaitingConnect;
    mqtt::Version version = mqtt::Version::k311;
    base::Outbox outbox;
    bool dirty = false;         // is in Turn::dirty
    bool doomed = false;        // will be disconnected at the end of this input: queue_policy
    uint8_t paused = 0;         // PauseReason bits
    bool pumps_later = false;   // is in State::to_pump_
    bool behind = false;        // the transport did not take all of the outbox
    size_t output_counted = 0;  // its share of State::output_bytes_

    std::string connect_packet;  // while kAuthenticating; decoded again then
    std::string connack;         // while kStoring
    Session* session = nullptr;  // while kStoring and kConnected

    // What the client said in CONNECT.
    uint32_t receive_maximum = 65535;
    uint32_t maximum_packet_size = UINT32_MAX;
    bool problem_information = true;
    bool clean_start = true;
    uint16_t keep_alive = 0;  // seconds; what we said where that is less
    base::WallTime connected_at{};
    Traffic traffic;

    // What we said in CONNACK; a reload changes it for the next connection only.
    uint16_t receive_quota = 0;
    uint16_t alias_maximum = 0;
    uint32_t packet_size_limit = 0;

    std::vector<std::string> aliases;  // from the client; index is the alias
    OutgoingAliases outgoing_aliases;

    Fifo<OwedAck> owed;
    uint64_t first_owed = 0;  // number of owed.front()
    size_t receiving = 0;     // PUBLISHes of this connection that are not completed

    // When the heap asks about this connection, `last_input` and `connect_deadline` decide. A later
    // deadline is put in only then: so a packet costs a store, not a heap operation.
    uint32_t timer_place = kNoPlace;  // in State::timers_
    base::MonoTime connect_deadline = base::kNever;
    base::MonoTime last_input{};
    size_t unfinished = 0;  // bytes of a packet that is not complete, as far as they count for that
    std::chrono::milliseconds patience{0};  // 1.5 x keep alive; 0: none
};

}  // namespace pgmqtt::broker
