#include "cdc/slot.h"

extern "C" {
#include <access/rmgr.h>
#include <access/xlog.h>
#include <replication/decode.h>
#include <replication/logical.h>
#include <storage/procarray.h>
#include <storage/standbydefs.h>
#include <utils/memutils.h>
}

#include "cdc/decoding.h"
#include "cdc/wal_reader.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

namespace {

constexpr const char* kPlugin = "pgmqtt";

// The first transaction of a running-transactions record that has not ended; invalid: all have. The
// server would wait for each of them where nothing can interrupt it.
TransactionId still_running(XLogReaderState* reader) {
    auto* running = reinterpret_cast<xl_running_xacts*>(XLogRecGetData(reader));
    for (int i = 0; i < running->xcnt; ++i) {
        if (TransactionIdIsInProgress(running->xids[i])) return running->xids[i];
    }
    return InvalidTransactionId;
}

bool is_running_transactions(XLogReaderState* reader) {
    return XLogRecGetRmid(reader) == RM_STANDBY_ID &&
           (XLogRecGetInfo(reader) & ~XLR_INFO_MASK) == XLOG_RUNNING_XACTS;
}

// The search for a starting point, a few milliseconds at a time.
struct StartSearch {
    LogicalDecodingContext* context = nullptr;
    MemoryContext memory = nullptr;
    TransactionId waiting_for = InvalidTransactionId;
    bool have_record = false;  // read, not processed yet
    bool ready = false;

    // As Shared::cdc_waits_for_pid has it.
    int waits_for_pid() const {
        if (!TransactionIdIsValid(waiting_for)) return 0;
        int pid = BackendXidGetPid(waiting_for);
        return pid != 0 ? pid : pg::kPreparedTransaction;
    }

    void begin(const char* name);
    void step();
    void finish();
};

void StartSearch::begin(const char* name) {
    create_ephemeral_slot(name);
    memory = AllocSetContextCreate(TopMemoryContext, "pgmqtt slot", ALLOCSET_DEFAULT_SIZES);
    MemoryContext before = MemoryContextSwitchTo(memory);
    context = CreateInitDecodingContext(kPlugin, NIL, false, InvalidXLogRecPtr,
                                        wal_reader_routine(), nullptr, nullptr, nullptr);
    XLogBeginRead(context->reader, MyReplicationSlot->data.restart_lsn);
    MemoryContextSwitchTo(before);
}

// Goes on until the end of WAL, a transaction to wait for, or the goal.
void StartSearch::step() {
    MemoryContext before = MemoryContextSwitchTo(memory);
    while (!ready) {
        if (!have_record) {
            char* message = nullptr;
            if (XLogReadRecord(context->reader, &message) == nullptr) {
                if (message != nullptr) elog(ERROR, "could not read WAL: %s", message);
                break;
            }
            have_record = true;
        }
        if (is_running_transactions(context->reader)) {
            waiting_for = still_running(context->reader);
            if (TransactionIdIsValid(waiting_for)) break;
        }
        LogicalDecodingProcessRecord(context, context->reader);
        have_record = false;
        ready = DecodingContextReady(context);
    }
    MemoryContextSwitchTo(before);
}

void StartSearch::finish() {
    ReplicationSlot* slot = MyReplicationSlot;
    SpinLockAcquire(&slot->mutex);
    slot->data.confirmed_flush = context->reader->EndRecPtr;
    SpinLockRelease(&slot->mutex);
    FreeDecodingContext(context);
    MemoryContextDelete(memory);
    ReplicationSlotPersist();
}

}  // namespace

std::string slot_name() {
    return "pgmqtt_" + std::to_string(MyDatabaseId);
}

bool slot_exists() {
    std::string name = slot_name();
    return SearchNamedReplicationSlot(name.c_str(), true) != nullptr;
}

pg::Result<CreateResult> create_slot(const std::function<bool()>& keep_going) {
    std::string name = slot_name();
    StartSearch search;
    pg::Status status = pg::guard([&search, &name] {
        CheckLogicalDecodingRequirements();
        search.begin(name.c_str());
    });
    bool going = true;
    while (status.ok() && !search.ready && going) {
        status = pg::guard([&search] { search.step(); });
        if (!status.ok() || search.ready) break;
        pg::shared()->cdc_waits_for_pid = search.waits_for_pid();
        going = keep_going();
    }
    pg::shared()->cdc_waits_for_pid = 0;
    if (status.ok() && search.ready) status = pg::guard([&search] { search.finish(); });
    if (status.ok() && search.ready) return CreateResult{true};
    release_slot();  // an ephemeral slot disappears
    if (!status.ok()) return base::fail(std::move(status.error()));
    return CreateResult{false};
}

pg::Status acquire_slot() {
    std::string name = slot_name();
    return pg::guard([&name] { acquire_slot(name.c_str()); });
}

bool slot_is_lost() {
    return MyReplicationSlot != nullptr && XLogRecPtrIsInvalid(MyReplicationSlot->data.restart_lsn);
}

void release_slot() {
    if (MyReplicationSlot == nullptr) return;
    pg::Status ignored = pg::guard([] { ReplicationSlotRelease(); });
    static_cast<void>(ignored);
}

pg::Status drop_slot() {
    release_slot();
    if (!slot_exists()) return base::Done{};
    std::string name = slot_name();
    return pg::guard([&name] { ReplicationSlotDrop(name.c_str(), true); });
}

}  // namespace pgmqtt::cdc
