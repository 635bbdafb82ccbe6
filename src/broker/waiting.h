// What Broker::State keeps for later: who waits for a worker, and what is to be done when the
// current input is over.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "broker/broker.h"
#include "broker/delivery.h"
#include "broker/message.h"
#include "broker/store_record.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

// A batch of publishes from SQL of which not everything is stored.
struct SqlBatch {
    PublishSource source = PublishSource::kCdc;
    uint64_t number = 0;
    uint64_t unfinished = 0;
};

// What goes on when a batch of the store is done.
struct StoreWait {
    enum class Kind : uint8_t { kConnack, kPacket, kSession, kPubrec, kPubcomp };
    uint64_t batch = 0;
    Kind kind = Kind::kSession;
    ConnectionId connection{};  // kConnack, kPacket
    uint64_t session = 0;       // the others
    uint16_t packet_id = 0;     // kPubrec, kPubcomp
    std::string packet{};       // kPacket
};

// Commands from SQL. Rows of those that were carried out may stand in their table for a while, and
// come again when the store worker does: whoever has connected meanwhile is not meant.
struct Commands {
    std::unordered_set<uint64_t> carried_out;  // by id, as long as they may come again
    uint64_t batch = 0;                        // under way; 0: none
    std::unordered_set<uint64_t> ending;       // sessions for whose end it waits
};

// A CONNECT that waits for the end of the session that had its client identifier.
struct Successor {
    ConnectionId connection;
    std::string username;
};

// A message for one of a group whose member left without it.
struct Orphan {
    uint64_t share = 0;
    MessagePtr message;  // null: only in the store
    StoredAs stored;
    uint32_t bytes = 0;
    base::MonoTime expires = base::kNever;
    mqtt::Qos qos = mqtt::Qos::k0;
    bool retain = false;
};

// A message that the store was asked for, and who waits for it.
struct Fetch {
    struct Waiter {
        uint64_t session = 0;
        uint64_t sequence = 0;
    };
    uint32_t bytes = 0;
    std::vector<Waiter> waiters;
};

// A delivery that refers to a part of the log that is to be cleaned.
struct MoveRef {
    uint64_t message_id = 0;
    uint64_t session = 0;
    uint64_t sequence = 0;
};

// The answer to a MoveRecord, as far as it is.
struct Moving {
    bool active = false;
    uint64_t up_to = 0;
    Durability durability = Durability::kDurable;
    uint64_t batch = 0;              // the store has this before it gets more
    std::vector<uint64_t> sessions;  // still to be looked through
    uint64_t below = UINT64_MAX;     // of the last of them, far entries with such sequences
    std::vector<std::vector<MoveRef>> chunks;  // each sorted, the lowest message_id last
    std::vector<MoveRef> late;                 // new references to old messages
    uint64_t source_id = 0;                    // was copied last
    uint64_t copy_id = 0;
};

// What one of the topics in $SYS says.
struct SysValue {
    MessagePtr message;
    bool told = false;  // to who subscribed before
};

// A will that is due.
struct OwnedWill {
    MessagePtr message;
    std::string client_id;
    std::string username;
};

}  // namespace pgmqtt::broker
