// Rows that snapshot_mapping() sent through the WAL become changes like those that were decoded.
#include "cdc/capture.h"

extern "C" {
#include <access/htup_details.h>
#include <utils/relcache.h>
}

#include <cstring>
#include <utility>

#include "cdc/row_copy.h"

namespace pgmqtt::cdc {

namespace {

// The rows behind the head, one after the other.
class SnapshotRows {
   public:
    SnapshotRows(const char* message, size_t size)
        : next_(message + sizeof(SnapshotHead)), end_(message + size) {}

    bool next(HeapTupleData& tuple, Oid& partition) {
        if (static_cast<size_t>(end_ - next_) < sizeof(SnapshotRow)) return false;
        SnapshotRow row;
        std::memcpy(&row, next_, sizeof row);
        next_ += sizeof row;
        auto left = static_cast<size_t>(end_ - next_);
        if (row.length < SizeofHeapTupleHeader || aligned(row.length) > left) return false;
        tuple.t_len = row.length;
        partition = row.partition;
        tuple.t_data = reinterpret_cast<HeapTupleHeader>(const_cast<char*>(next_));
        next_ += aligned(row.length);
        return true;
    }

   private:
    const char* next_;
    const char* end_;
};

}  // namespace

void Capture::set_snapshot_key(std::string key) {
    snapshot_key_ = std::move(key);
    token_known_ = false;
}

// Anybody may have written it; the log says so once per transaction.
bool Capture::is_genuine(const SnapshotHead& head, ReorderBufferTXN* txn) {
    if (!token_known_ || token_xid_ != txn->xid) {
        token_ = make_snapshot_token(snapshot_key_.data(), snapshot_key_.size(),
                                     U64FromFullTransactionId(full_xid(txn->xid)));
        token_xid_ = txn->xid;
        token_known_ = true;
        forgery_told_ = false;
    }
    if (std::memcmp(token_.bytes, head.token.bytes, kTokenSize) == 0) return true;
    if (!std::exchange(forgery_told_, true)) {
        ereport(LOG,
                (errmsg("pgmqtt ignores a logical decoding message of transaction %u", txn->xid),
                 errdetail("Its prefix is \"%s\", but snapshot_mapping() did not write it.",
                           kSnapshotPrefix)));
    }
    return false;
}

// Inside a decoding callback; may raise.
void Capture::add_snapshot(ReorderBufferTXN* txn, XLogRecPtr lsn, const char* message,
                           size_t size) {
    if (size < sizeof(SnapshotHead)) return;
    SnapshotHead head;
    std::memcpy(&head, message, sizeof head);
    MemoryContext before = MemoryContextSwitchTo(row_context_);
    if (is_genuine(head, txn)) {
        // As it was when the rows were read: its definition was locked.
        Relation relation = RelationIdGetRelation(head.source);
        if (RelationIsValid(relation)) {
            uint32_t shape = shapes_.remember(head.source, RelationGetDescr(relation));
            RelationClose(relation);
            ensure_begun(txn);
            SnapshotRows rows(message, size);
            HeapTupleData tuple = {};
            Oid partition = InvalidOid;
            while (rows.next(tuple, partition)) {
                RowCopy row;
                row.tuple = &tuple;
                append_change(
                    log_,
                    {Op::kSnapshot, head.source, shape, next_seq(lsn), head.mapping, partition},
                    row, {});
                ++changes_;
            }
        }
    }
    MemoryContextSwitchTo(before);
    MemoryContextReset(row_context_);
}

}  // namespace pgmqtt::cdc
