#include "cdc/source_scan.h"

extern "C" {
#include <access/heaptoast.h>
#include <access/table.h>
#include <access/tableam.h>
#include <access/tupconvert.h>
#include <catalog/pg_class.h>
#include <executor/tuptable.h>
#include <utils/rel.h>
#include <utils/snapmgr.h>
}

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

struct Scan {
    Relation source;
    TakeRow take;
    void* context;
    MemoryContext row_memory;  // emptied with each row
};

// What dropped columns still hold is nobody's any more.
HeapTuple whole_row(TupleTableSlot* row) {
    slot_getallattrs(row);
    TupleDesc columns = row->tts_tupleDescriptor;
    for (int i = 0; i < columns->natts; ++i) {
        if (TupleDescAttr(columns, i)->attisdropped) row->tts_isnull[i] = true;
    }
    return toast_build_flattened_tuple(columns, row->tts_values, row->tts_isnull);
}

void take_row(const Scan& scan, TupleTableSlot* row, Oid table) {
    MemoryContext before = MemoryContextSwitchTo(scan.row_memory);
    scan.take(scan.context, whole_row(row), table);
    MemoryContextSwitchTo(before);
    MemoryContextReset(scan.row_memory);
}

void scan_table(const Scan& scan, Relation table) {
    TupleDesc columns = RelationGetDescr(scan.source);
    // Null: the rows are alike.
    TupleConversionMap* map =
        table == scan.source ? nullptr : convert_tuples_by_name(RelationGetDescr(table), columns);
    TupleTableSlot* slot = table_slot_create(table, nullptr);
    TupleTableSlot* converted =
        map == nullptr ? nullptr : MakeSingleTupleTableSlot(columns, &TTSOpsVirtual);
    TableScanDesc rows = table_beginscan(table, GetActiveSnapshot(), 0, nullptr);
    while (table_scan_getnextslot(rows, ForwardScanDirection, slot)) {
        CHECK_FOR_INTERRUPTS();
        TupleTableSlot* row =
            map == nullptr ? slot : execute_attr_map_slot(map->attrMap, slot, converted);
        take_row(scan, row, RelationGetRelid(table));
    }
    table_endscan(rows);
    if (converted != nullptr) ExecDropSingleTupleTableSlot(converted);
    ExecDropSingleTupleTableSlot(slot);
    if (map != nullptr) free_conversion_map(map);
}

void scan_if_it_has_rows(const Scan& scan, Oid id) {
    Relation table = table_open(id, NoLock);
    char kind = table->rd_rel->relkind;
    if (kind == RELKIND_FOREIGN_TABLE) {
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("partition \"%s\" is a foreign table", RelationGetRelationName(table)),
                 errdetail("Its changes are not in the WAL, so the mapping publishes none."),
                 errhint("With a predicate, such as 'true', you read the rows yourself.")));
    }
    if (kind != RELKIND_PARTITIONED_TABLE) scan_table(scan, table);
    table_close(table, NoLock);
}

}  // namespace

void scan_source(Oid source, List* tables, TakeRow take, void* context) {
    Scan scan = {
        table_open(source, NoLock), take, context,
        AllocSetContextCreate(CurrentMemoryContext, "pgmqtt scanned row", ALLOCSET_DEFAULT_SIZES)};
    ListCell* cell;
    foreach (cell, tables) scan_if_it_has_rows(scan, lfirst_oid(cell));
    MemoryContextDelete(scan.row_memory);
    table_close(scan.source, NoLock);
}

}  // namespace pgmqtt::cdc
