// Named places at which an administrator of the operating system can have a worker fail, to see
// that nothing is lost: PGMQTT_FAILPOINT=name[:hit][:kill|error|exit] in the environment of the
// postmaster. The worker that passes the place for the hit-th time (1) is killed as by kill -9
// (kill), gets an ERROR (error) or ends (exit), with a line in the log. Once: after the restart of
// all workers that a kill brings about, nothing is armed any more.
//
// Not armed, a failpoint costs one branch; they are passed once per batch, never per message.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::pg {

enum class Failpoint : int {
    kStoreLoad,       // in the transaction that reads the queue's log
    kStoreWrite,      // in the storing transaction, before it has written anything
    kStoreCommit,     // in it, all is written
    kStoreAnswer,     // committed, the broker does not know
    kStoreAnswered,   // the broker is told
    kStoreTruncate,   // drained segments are truncated, not committed
    kStoreTruncated,  // committed
    kStoreMove,       // what is left of an old segment is written to the newest, not committed
    kStoreMoved,      // committed
    kStoreFetch,      // messages are read for the broker, not sent
    kHandoverRead,    // rows of publish() and commands are read, not sent
    kHandoverRemove,  // what the broker is done with is removed, not committed
    kBrokerLoad,      // before sessions and retained messages are read
    kBrokerHandOver,  // before a batch to be stored is sent
    kBrokerHandedOver,
    kBrokerAcknowledge,  // a batch is stored, the clients do not know
    kSinkWrite,          // in the transaction of a sink, before its statement
    kSinkCommit,         // in it, after its statement
    kSinkAnswer,         // committed, the broker does not know
    kCdcEvaluate,        // in the transaction that evaluates changes
    kCdcPublish,         // they are evaluated, not published
    kCdcConfirm,         // published, and the slot does not know
    kNone,
};

namespace internal {
extern Failpoint armed_failpoint;
void reach_failpoint();
void reach_failpoint_in_guard();
}  // namespace internal

// Between C++ frames: "error" is thrown as pg::Raised.
inline void failpoint(Failpoint here) {
    if (internal::armed_failpoint == here) [[unlikely]]
        internal::reach_failpoint();
}

// Inside a guard or transaction: "error" is a server ERROR.
inline void failpoint_in_guard(Failpoint here) {
    if (internal::armed_failpoint == here) [[unlikely]]
        internal::reach_failpoint_in_guard();
}

// In the postmaster, whenever shared memory is made: reads the environment the first time, FATAL if
// it makes no sense; disarms later.
void arm_failpoint();

}  // namespace pgmqtt::pg
