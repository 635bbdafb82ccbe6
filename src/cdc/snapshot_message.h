// Rows of a snapshot on their way through the WAL: transactional logical messages, so that they
// stand in the stream where their transaction commits, vanish with what is rolled back and wait
// with what is prepared. Everybody may write such messages: those of snapshot_mapping() carry a
// token that only the owner of pgmqtt.snapshot_key can make, and only for this transaction.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <string>

#include "pg/guard.h"

namespace pgmqtt::cdc {

inline constexpr const char* kSnapshotPrefix = "pgmqtt.snapshot";

inline constexpr size_t kTokenSize = 32;
struct SnapshotToken {
    char bytes[kTokenSize];
};

// In the byte order and alignment of the machine, as all of WAL. Rows follow.
struct SnapshotHead {
    SnapshotToken token;
    int32_t mapping;  // pgmqtt.mapping.id
    Oid source;
};

// Its tuple follows, a composite value without external parts; its size is rounded up to 8.
struct SnapshotRow {
    uint32_t length;
    Oid partition;  // or the table itself
};

// The token of the transaction with this full id. pallocs, may raise.
SnapshotToken make_snapshot_token(const char* key, size_t key_size, uint64_t xid);

// pgmqtt.snapshot_key, as the current user; SPI is connected. pallocs, may raise.
struct SnapshotKey {
    const char* data;
    size_t size;
};
SnapshotKey read_snapshot_key();

// The same for the cdc worker. Runs a transaction.
pg::Result<std::string> load_snapshot_key();

}  // namespace pgmqtt::cdc
