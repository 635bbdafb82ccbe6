#include "cdc/snapshot_message.h"

extern "C" {
#include <executor/spi.h>
#include <utils/fmgrprotos.h>
}

#include <cstring>

#include "pg/datum.h"
#include "pg/transaction.h"

namespace pgmqtt::cdc {

// The input has one length, so nobody can go on from a token to that of another transaction.
SnapshotToken make_snapshot_token(const char* key, size_t key_size, uint64_t xid) {
    size_t size = key_size + sizeof xid;
    auto* input = static_cast<bytea*>(palloc(VARHDRSZ + size));
    SET_VARSIZE(input, VARHDRSZ + size);
    std::memcpy(VARDATA(input), key, key_size);
    std::memcpy(VARDATA(input) + key_size, &xid, sizeof xid);
    auto* hash = DatumGetByteaPP(DirectFunctionCall1(sha256_bytea, PointerGetDatum(input)));
    SnapshotToken token;
    std::memcpy(token.bytes, VARDATA_ANY(hash), kTokenSize);
    return token;
}

SnapshotKey read_snapshot_key() {
    int result = SPI_execute("SELECT key FROM pgmqtt.snapshot_key", true, 1);
    if (result != SPI_OK_SELECT || SPI_processed != 1) {
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("pgmqtt.snapshot_key has no row")));
    }
    bool is_null;
    base::ByteView key =
        pg::varlena_view(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
    return {key.data(), key.size()};
}

pg::Result<std::string> load_snapshot_key() {
    std::string key;
    pg::TransactionOptions options;
    options.read_only = true;
    pg::Status status = pg::transaction(options, [&key] {
        SnapshotKey read = read_snapshot_key();
        key.assign(read.data, read.size);
    });
    if (!status.ok()) return base::fail(std::move(status.error()));
    return key;
}

}  // namespace pgmqtt::cdc
