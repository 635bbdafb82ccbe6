#include "cdc/decoder.h"

extern "C" {
#include <access/heapam_xlog.h>
#include <access/rmgr.h>
#include <access/xact.h>
#include <replication/decode.h>
#include <replication/slot.h>
#include <storage/lwlock.h>
#include <storage/proc.h>
#include <storage/standby.h>
#include <utils/memutils.h>
}

#include <algorithm>

#include "cdc/wal_reader.h"

namespace pgmqtt::cdc {

namespace {

// Decoded again in a fraction of a second; each record costs a flushed file of the snapshot.
constexpr XLogRecPtr kRestartDistance = 32 << 20;

// INSERT ... ON CONFLICT writes the row, then a record that confirms it. The reorder buffer must
// see both or none, and what is skipped may change between the two: so both are decoded.
bool is_speculative(XLogReaderState* reader) {
    auto* insert = reinterpret_cast<const xl_heap_insert*>(XLogRecGetData(reader));
    return (insert->flags & XLH_INSERT_IS_SPECULATIVE) != 0;
}

// Whether the record only changes rows of one table, in a transaction that the reorder buffer can
// hear of by its id alone.
bool is_row_change(XLogReaderState* reader) {
    if (TransactionIdIsValid(XLogRecGetTopXid(reader)) || !XLogRecHasBlockRef(reader, 0))
        return false;
    uint8 info = XLogRecGetInfo(reader) & XLOG_HEAP_OPMASK;
    switch (XLogRecGetRmid(reader)) {
        case RM_HEAP_ID:
            if (info == XLOG_HEAP_INSERT) return !is_speculative(reader);
            return info == XLOG_HEAP_UPDATE || info == XLOG_HEAP_HOT_UPDATE ||
                   info == XLOG_HEAP_DELETE;
        case RM_HEAP2_ID:
            return info == XLOG_HEAP2_MULTI_INSERT;
        default:
            return false;
    }
}

// A command that changed catalogs: what is unmapped may be about to become a partition.
bool is_catalog_change(XLogReaderState* reader) {
    return XLogRecGetRmid(reader) == RM_XACT_ID &&
           (XLogRecGetInfo(reader) & XLOG_XACT_OPMASK) == XLOG_XACT_INVALIDATIONS;
}

}  // namespace

Decoder::Decoder(Capture& capture, ChangeLog& log) : capture_(capture), log_(log) {}

Decoder::~Decoder() {
    close();
}

pg::Status Decoder::open() {
    return pg::guard([this] {
        memory_ =
            AllocSetContextCreate(TopMemoryContext, "pgmqtt decoding", ALLOCSET_DEFAULT_SIZES);
        MemoryContext before = MemoryContextSwitchTo(memory_);
        context_ = CreateDecodingContext(InvalidXLogRecPtr, NIL, false, wal_reader_routine(),
                                         nullptr, nullptr, nullptr);
        MemoryContextSwitchTo(before);
        // A walsender reads nothing but catalogs, so its snapshots may be ignored by VACUUM. Ours
        // are taken to evaluate expressions and must hold back VACUUM like anybody's.
        LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
        MyProc->statusFlags &= static_cast<uint8>(~PROC_IN_LOGICAL_DECODING);
        ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
        LWLockRelease(ProcArrayLock);
        XLogBeginRead(context_->reader, MyReplicationSlot->data.restart_lsn);
        position_ = MyReplicationSlot->data.restart_lsn;
        confirmed_ = saved_ = MyReplicationSlot->data.confirmed_flush;
    });
}

void Decoder::close() {
    if (context_ == nullptr) return;
    pg::Status ignored = pg::guard([this] {
        FreeDecodingContext(context_);
        MemoryContextDelete(memory_);
    });
    static_cast<void>(ignored);
    context_ = nullptr;
    memory_ = nullptr;
    capture_.reset();
}

void Decoder::process_record() {
    XLogReaderState* reader = context_->reader;
    pg::FileNode node;
    if (is_catalog_change(reader)) capture_.forget_skipped();
    if (is_row_change(reader)) {
        XLogRecGetBlockTag(reader, 0, &node, nullptr, nullptr);
        if (capture_.skips(node)) {
            ReorderBufferProcessXid(context_->reorder, XLogRecGetXid(reader), reader->ReadRecPtr);
            return;
        }
    }
    LogicalDecodingProcessRecord(context_, reader);
}

pg::Status Decoder::decode(XLogRecPtr target, size_t log_bytes,
                           const volatile sig_atomic_t& interrupted) {
    return pg::guard([this, target, log_bytes, &interrupted] {
        MemoryContext before = MemoryContextSwitchTo(memory_);
        ResourceOwner owner = CurrentResourceOwner;
        while (position_ < target && log_.bytes() <= log_bytes && !interrupted) {
            char* message = nullptr;
            XLogRecord* record = XLogReadRecord(context_->reader, &message);
            if (message != nullptr) elog(ERROR, "could not read WAL: %s", message);
            if (record == nullptr) break;
            process_record();
            position_ = context_->reader->EndRecPtr;
            CHECK_FOR_INTERRUPTS();
        }
        // Decoding runs transactions of its own.
        CurrentResourceOwner = owner;
        MemoryContextSwitchTo(before);
    });
}

pg::Status Decoder::confirm(XLogRecPtr lsn) {
    if (lsn <= confirmed_) return base::Done{};
    confirmed_ = lsn;
    return pg::guard([lsn] { LogicalConfirmReceivedLocation(lsn); });
}

pg::Status Decoder::save() {
    if (is_saved()) return base::Done{};
    saved_ = confirmed_;
    return pg::guard([] {
        ReplicationSlotMarkDirty();
        ReplicationSlotSave();
    });
}

pg::Status Decoder::keep_restart_near() {
    XLogRecPtr last = std::max(restart_asked_, MyReplicationSlot->data.restart_lsn);
    if (position_ < last + kRestartDistance) return base::Done{};
    return pg::guard([this] { restart_asked_ = LogStandbySnapshot(); });
}

}  // namespace pgmqtt::cdc
