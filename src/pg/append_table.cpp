#include "pg/append_table.h"

extern "C" {
#include <access/heapam.h>
#include <access/table.h>
#include <access/xact.h>
#include <catalog/namespace.h>
#include <executor/tuptable.h>
#include <storage/bufmgr.h>
#include <storage/lmgr.h>
#include <tcop/utility.h>
#include <utils/lsyscache.h>
#include <utils/memutils.h>
#include <utils/rel.h>
#include <utils/relcache.h>
#include <utils/snapmgr.h>
}

#include <algorithm>

#include "pg/file_node.h"

namespace pgmqtt::pg {
namespace {

RowPlace place_of(const ItemPointerData& tid) {
    return RowPlace{ItemPointerGetBlockNumberNoCheck(&tid)} << 16 |
           ItemPointerGetOffsetNumberNoCheck(&tid);
}

// The server's macro does not pass our warnings.
ItemPointerData tid_of(BlockNumber block, OffsetNumber offset) {
    ItemPointerData tid;
    tid.ip_blkid.bi_hi = static_cast<uint16>(block >> 16);
    tid.ip_blkid.bi_lo = static_cast<uint16>(block & 0xffff);
    tid.ip_posid = offset;
    return tid;
}

// Our inserts would not reach an index, nor fire a trigger.
void require_plain(Relation table) {
    // relhasindex also says that there may have been one.
    bool indexed = table->rd_rel->relhasindex && RelationGetIndexList(table) != NIL;
    if (!indexed && table->trigdesc == nullptr) return;
    ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                    errmsg("table \"pgmqtt.%s\" has an index or a trigger",
                           RelationGetRelationName(table)),
                    errhint("Drop it: pgmqtt writes this table directly.")));
}

}  // namespace

Oid table_id(const char* name, bool may_miss) {
    Oid space = get_namespace_oid("pgmqtt", may_miss);
    Oid table = OidIsValid(space) ? get_relname_relid(name, space) : InvalidOid;
    if (!OidIsValid(table) && !may_miss)
        ereport(ERROR,
                (errcode(ERRCODE_UNDEFINED_TABLE),
                 errmsg("table \"pgmqtt.%s\" of the extension is missing", name),
                 errhint("Restore it, or drop and create extension pgmqtt: sessions are lost.")));
    return table;
}

uint32_t file_of(Relation table) {
    return number(file_node(table));
}

bool try_lock(Oid table, LOCKMODE mode) {
    return ConditionalLockRelationOid(table, mode);
}

void lock(Oid table, LOCKMODE mode) {
    LockRelationOid(table, mode);
}

// --- writing

TableAppender::TableAppender(Oid table) {
    PreventCommandIfReadOnly("INSERT");
    table_ = table_open(table, NoLock);
    require_plain(table_);
    context_ =
        AllocSetContextCreate(CurrentMemoryContext, "pgmqtt appended rows", ALLOCSET_DEFAULT_SIZES);
}

TupleTableSlot* TableAppender::next_slot() {
    if (count_ == made_) slots_[made_++] = table_slot_create(table_, nullptr);
    return slots_[count_];
}

void TableAppender::add(std::initializer_list<Datum> row, size_t bytes, RowPlace* place) {
    MemoryContext before = MemoryContextSwitchTo(MemoryContextGetParent(context_));
    TupleTableSlot* slot = next_slot();
    MemoryContextSwitchTo(before);
    std::copy(row.begin(), row.end(), slot->tts_values);
    std::fill_n(slot->tts_isnull, row.size(), false);
    ExecStoreVirtualTuple(slot);
    added(bytes, place);
}

void TableAppender::add_copy(TupleTableSlot* row, Datum first, size_t bytes, RowPlace* place) {
    slot_getallattrs(row);
    MemoryContext before = MemoryContextSwitchTo(MemoryContextGetParent(context_));
    TupleTableSlot* slot = next_slot();
    MemoryContextSwitchTo(before);
    std::copy_n(row->tts_values, row->tts_nvalid, slot->tts_values);
    std::fill_n(slot->tts_isnull, row->tts_nvalid, false);
    slot->tts_values[0] = first;
    ExecStoreVirtualTuple(slot);
    ExecMaterializeSlot(slot);  // what `row` points into goes away
    added(bytes, place);
}

void TableAppender::added(size_t bytes, RowPlace* place) {
    places_[count_++] = place;
    bytes_ += bytes;
    if (count_ == kRows || bytes_ >= kBytes) flush();
}

// Without looking for free space elsewhere: what is in order stays in order.
void TableAppender::flush() {
    if (count_ == 0) return;
    MemoryContext before = MemoryContextSwitchTo(context_);
    table_multi_insert(table_, slots_, count_, GetCurrentCommandId(true), TABLE_INSERT_SKIP_FSM,
                       nullptr);
    MemoryContextSwitchTo(before);
    for (int i = 0; i < count_; ++i) {
        if (places_[i] != nullptr) *places_[i] = place_of(slots_[i]->tts_tid);
        ExecClearTuple(slots_[i]);
    }
    count_ = 0;
    bytes_ = 0;
    MemoryContextReset(context_);
}

void TableAppender::close() {
    flush();
    for (int i = 0; i < made_; ++i) ExecDropSingleTupleTableSlot(slots_[i]);
    MemoryContextDelete(context_);
    table_close(table_, NoLock);
}

// --- reading

TableReader::TableReader(Oid table)
    : table_(table_open(table, AccessShareLock)),
      slot_(table_slot_create(table_, nullptr)),
      blocks_(RelationGetNumberOfBlocks(table_)) {}

TupleTableSlot* TableReader::at(RowPlace place) {
    auto block = static_cast<BlockNumber>(place >> 16);
    auto offset = static_cast<OffsetNumber>(place);
    if (block >= blocks_ || offset == InvalidOffsetNumber) return nullptr;
    ItemPointerData tid = tid_of(block, offset);
    ExecClearTuple(slot_);
    if (!table_tuple_fetch_row_version(table_, &tid, GetActiveSnapshot(), slot_)) return nullptr;
    return slot_;
}

TupleTableSlot* TableReader::next() {
    if (scan_ == nullptr) scan_ = table_beginscan(table_, GetActiveSnapshot(), 0, nullptr);
    return table_scan_getnextslot(scan_, ForwardScanDirection, slot_) ? slot_ : nullptr;
}

RowPlace TableReader::place() const {
    return place_of(slot_->tts_tid);
}

void TableReader::close() {
    if (scan_ != nullptr) table_endscan(scan_);
    ExecDropSingleTupleTableSlot(slot_);
    table_close(table_, AccessShareLock);
}

}  // namespace pgmqtt::pg
