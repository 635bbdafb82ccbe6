#include "cdc/row_copy.h"

extern "C" {
#include <access/detoast.h>
}

#include <cstring>

namespace pgmqtt::cdc {

RowCopy copy_row(TupleDesc columns, HeapTuple tuple, HeapTuple full_old) {
    RowCopy copy;
    if (!HeapTupleHasExternal(tuple) && HeapTupleHeaderGetNatts(tuple->t_data) == columns->natts) {
        copy.tuple = tuple;
        return copy;
    }
    auto count = static_cast<size_t>(columns->natts);
    auto* values = static_cast<Datum*>(palloc(count * sizeof(Datum)));
    auto* nulls = static_cast<bool*>(palloc(count * sizeof(bool)));
    auto* absent = static_cast<AttrNumber*>(palloc(count * sizeof(AttrNumber)));
    // Also fills in columns that were added with a default after the row was written.
    heap_deform_tuple(tuple, columns, values, nulls);
    for (int i = 0; i < columns->natts; ++i) {
        Form_pg_attribute column = TupleDescAttr(columns, i);
        if (nulls[i] || column->attlen != -1) continue;
        auto* value = reinterpret_cast<struct varlena*>(DatumGetPointer(values[i]));
        if (!VARATT_IS_EXTERNAL(value)) continue;
        if (!VARATT_IS_EXTERNAL_ONDISK(value)) {
            values[i] = PointerGetDatum(detoast_external_attr(value));
            continue;
        }
        values[i] =
            full_old != nullptr ? heap_getattr(full_old, i + 1, columns, &nulls[i]) : Datum{0};
        auto* old_value = reinterpret_cast<struct varlena*>(DatumGetPointer(values[i]));
        if (full_old != nullptr && !nulls[i]) {
            if (!VARATT_IS_EXTERNAL(old_value)) continue;
            if (!VARATT_IS_EXTERNAL_ONDISK(old_value)) {
                values[i] = PointerGetDatum(detoast_external_attr(old_value));
                continue;
            }
        }
        nulls[i] = true;
        if (!column->attisdropped) absent[copy.absent_count++] = column->attnum;
    }
    copy.tuple = heap_form_tuple(columns, values, nulls);
    copy.absent = absent;
    return copy;
}

namespace {

size_t part_size(const RowCopy& row) {
    if (row.tuple == nullptr) return 0;
    return aligned(row.tuple->t_len) + aligned(row.absent_count * sizeof(AttrNumber));
}

void put_part(ChangeRecord& record, RowPart& part, const RowCopy& row, size_t& offset) {
    part = {};
    if (row.tuple == nullptr) return;
    char* base = reinterpret_cast<char*>(&record);
    part.offset = static_cast<uint32_t>(offset);
    part.length = row.tuple->t_len;
    std::memcpy(base + offset, row.tuple->t_data, row.tuple->t_len);
    // As a value of a row type the tuple has no place in a table.
    ItemPointerSetInvalid(&record.tuple(part)->t_ctid);
    offset += aligned(row.tuple->t_len);
    part.absent = static_cast<uint32_t>(offset);
    part.absent_count = row.absent_count;
    if (row.absent_count > 0) {
        std::memcpy(base + offset, row.absent, row.absent_count * sizeof(AttrNumber));
    }
    offset += aligned(row.absent_count * sizeof(AttrNumber));
}

}  // namespace

void append_change(ChangeLog& log, const ChangeHead& head, const RowCopy& new_row,
                   const RowCopy& old_row) {
    size_t offset = aligned(sizeof(ChangeRecord));
    size_t size = offset + part_size(new_row) + part_size(old_row);
    auto* record = reinterpret_cast<ChangeRecord*>(log.append(size));
    record->size = size;
    record->kind = RecordKind::kChange;
    record->op = head.op;
    record->target = head.target;
    record->shape = head.shape;
    record->seq = head.seq;
    record->mapping = head.mapping;
    record->partition = head.partition;
    put_part(*record, record->new_row, new_row, offset);
    put_part(*record, record->old_row, old_row, offset);
}

}  // namespace pgmqtt::cdc
