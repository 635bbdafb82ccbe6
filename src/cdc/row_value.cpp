#include "cdc/row_value.h"

extern "C" {
#include <catalog/pg_type.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
}

#include <algorithm>
#include <cstring>

#include "pg/datum.h"

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

bool same_layout(TupleDesc from, TupleDesc to) {
    if (from->natts != to->natts) return false;
    for (int i = 0; i < from->natts; ++i) {
        Form_pg_attribute a = TupleDescAttr(from, i);
        Form_pg_attribute b = TupleDescAttr(to, i);
        if (a->attisdropped != b->attisdropped || a->attlen != b->attlen ||
            a->attalign != b->attalign || a->attbyval != b->attbyval) {
            return false;
        }
        if (!a->attisdropped && a->atttypid != b->atttypid) return false;
    }
    return true;
}

AttrNumber find_column(TupleDesc columns, const char* name) {
    for (int i = 0; i < columns->natts; ++i) {
        Form_pg_attribute column = TupleDescAttr(columns, i);
        if (!column->attisdropped && std::strcmp(NameStr(column->attname), name) == 0) {
            return column->attnum;
        }
    }
    return InvalidAttrNumber;
}

// Inside a table a column keeps its number through a rename; between a partition and its root only
// the name says what belongs together, and the partition's is the one it has now.
AttrNumber target_column(const Shapes::Shape& shape, Oid target, TupleDesc to, int number) {
    if (shape.relation == target) {
        bool there = number <= to->natts && !TupleDescAttr(to, number - 1)->attisdropped;
        return there ? static_cast<AttrNumber>(number) : InvalidAttrNumber;
    }
    const char* name = get_attname(shape.relation, static_cast<AttrNumber>(number), true);
    if (name == nullptr) name = NameStr(TupleDescAttr(shape.columns, number - 1)->attname);
    return find_column(to, name);
}

Datum convert(Datum value, Form_pg_attribute from, Form_pg_attribute to) {
    Oid output, input, parameter;
    bool is_varlena;
    getTypeOutputInfo(from->atttypid, &output, &is_varlena);
    getTypeInputInfo(to->atttypid, &input, &parameter);
    char* text = OidOutputFunctionCall(output, value);
    return OidInputFunctionCall(input, text, parameter, to->atttypmod);
}

// The server's own function, because newer minor versions mark a composite value with the version
// of its row type and refuse one that is not.
Datum as_composite(HeapTuple tuple, TupleDesc type) {
    return heap_copy_tuple_as_datum(tuple, type);
}

}  // namespace

RowConversion* make_conversion(const Shapes::Shape& shape, uint32_t number, Oid target,
                               TupleDesc to) {
    auto* conversion = static_cast<RowConversion*>(palloc0(sizeof(RowConversion)));
    conversion->shape = number;
    conversion->target = target;
    conversion->from = shape.columns;
    conversion->to = to;
    conversion->same = shape.relation == target && same_layout(shape.columns, to);
    auto count = static_cast<size_t>(to->natts);
    conversion->source = static_cast<AttrNumber*>(palloc0(count * sizeof(AttrNumber)));
    conversion->through_text = static_cast<bool*>(palloc0(count * sizeof(bool)));
    for (int i = 1; i <= shape.columns->natts; ++i) {
        Form_pg_attribute from = TupleDescAttr(shape.columns, i - 1);
        if (from->attisdropped) continue;
        AttrNumber column = target_column(shape, target, to, i);
        if (column == InvalidAttrNumber) continue;
        conversion->source[column - 1] = static_cast<AttrNumber>(i);
        conversion->through_text[column - 1] =
            TupleDescAttr(to, column - 1)->atttypid != from->atttypid;
    }
    for (int i = 0; i < to->natts; ++i) {
        bool missing = conversion->source[i] == InvalidAttrNumber;
        conversion->incomplete |= missing && !TupleDescAttr(to, i)->attisdropped;
    }
    return conversion;
}

Datum row_value(const RowConversion& conversion, ChangeRecord& record, const RowPart& part) {
    HeapTupleData tuple;
    tuple.t_len = part.length;
    tuple.t_tableOid = InvalidOid;
    ItemPointerSetInvalid(&tuple.t_self);
    tuple.t_data = record.tuple(part);
    if (conversion.same) return as_composite(&tuple, conversion.to);

    auto from_count = static_cast<size_t>(conversion.from->natts);
    auto to_count = static_cast<size_t>(conversion.to->natts);
    auto* from_values = static_cast<Datum*>(palloc(from_count * sizeof(Datum)));
    auto* from_nulls = static_cast<bool*>(palloc(from_count * sizeof(bool)));
    auto* values = static_cast<Datum*>(palloc0(to_count * sizeof(Datum)));
    auto* nulls = static_cast<bool*>(palloc(to_count * sizeof(bool)));
    heap_deform_tuple(&tuple, conversion.from, from_values, from_nulls);
    for (size_t i = 0; i < to_count; ++i) {
        AttrNumber source = conversion.source[i];
        nulls[i] = source == InvalidAttrNumber || from_nulls[source - 1];
        if (nulls[i]) continue;
        values[i] = from_values[source - 1];
        if (!conversion.through_text[i]) continue;
        values[i] = convert(values[i], TupleDescAttr(conversion.from, source - 1),
                            TupleDescAttr(conversion.to, static_cast<int>(i)));
    }
    return as_composite(heap_form_tuple(conversion.to, values, nulls), conversion.to);
}

Datum absent_names(const RowConversion& conversion, const ChangeRecord& record,
                   const RowPart& part) {
    auto columns = static_cast<size_t>(conversion.to->natts);
    auto* names = static_cast<Datum*>(palloc(columns * sizeof(Datum)));
    int count = 0;
    const AttrNumber* absent = record.absent(part);
    for (int i = 0; i < conversion.to->natts; ++i) {
        Form_pg_attribute column = TupleDescAttr(conversion.to, i);
        AttrNumber source = conversion.source[i];
        if (column->attisdropped) continue;
        if (source != InvalidAttrNumber &&
            std::find(absent, absent + part.absent_count, source) == absent + part.absent_count) {
            continue;
        }
        names[count++] = CStringGetTextDatum(NameStr(column->attname));
    }
    return pg::array_datum(names, count, TEXTOID);
}

}  // namespace pgmqtt::cdc
