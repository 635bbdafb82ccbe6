// The replication slot: one per database, made with the first enabled mapping, gone with the last.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/xlogdefs.h>
}

#include <functional>
#include <string>

#include "pg/guard.h"

namespace pgmqtt::cdc {

// "pgmqtt_<oid of the database>"
std::string slot_name();

bool slot_exists();

// Makes the slot and leaves it acquired. That takes until every transaction that writes now has
// ended; the one it waits for is in Shared::cdc_waits_for_pid. `keep_going` is asked several times
// a second: false gives up (and removes the half-made slot).
struct CreateResult {
    bool created = false;  // false without an error: given up
};
pg::Result<CreateResult> create_slot(const std::function<bool()>& keep_going);

// Takes an existing slot. Fails when somebody else has it.
pg::Status acquire_slot();

// Whether the acquired slot has lost WAL that it needed (max_slot_wal_keep_size).
bool slot_is_lost();

void release_slot();
// Releases first when it is ours.
pg::Status drop_slot();

}  // namespace pgmqtt::cdc
