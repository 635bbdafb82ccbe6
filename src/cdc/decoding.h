// What the server's logical decoding calls otherwise in its versions 14 to 18.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <replication/reorderbuffer.h>
#include <replication/slot.h>
}

namespace pgmqtt::cdc {

// The row in a change, null when there is none.
#if PG_VERSION_NUM >= 170000
inline HeapTuple row_in(HeapTuple row) {
    return row;
}
#else
inline HeapTuple row_in(ReorderBufferTupleBuf* buffer) {
    return buffer == nullptr ? nullptr : &buffer->tuple;
}
#endif

// A slot of this database that goes with the process.
inline void create_ephemeral_slot(const char* name) {
#if PG_VERSION_NUM >= 170000
    ReplicationSlotCreate(name, true, RS_EPHEMERAL, false, false, false);
#else
    ReplicationSlotCreate(name, true, RS_EPHEMERAL, false);
#endif
}

// Raises while another process has it. Not because its WAL is gone: what follows from that is ours
// to say.
inline void acquire_slot(const char* name) {
#if PG_VERSION_NUM >= 180000
    ReplicationSlotAcquire(name, true, false);
#else
    ReplicationSlotAcquire(name, true);
#endif
}

}  // namespace pgmqtt::cdc
