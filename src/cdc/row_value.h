// Turns a copied row into a value of the source's row type as it is now.
#pragma once

#include "pg/backend.h"

#include "cdc/capture.h"
#include "cdc/change.h"

namespace pgmqtt::cdc {

// How the columns of one shape become those of a row type. Plain data of one transaction.
struct RowConversion {
    uint32_t shape;
    Oid target;
    bool same;        // nothing to do
    bool incomplete;  // `to` has columns that came later: absent in the row
    TupleDesc from;   // the shape's
    TupleDesc to;
    AttrNumber* source;  // per column of `to`: the column of `from`; 0: there is none
    bool* through_text;  // per column of `to`: the type changed
};

// pallocs, may raise.
RowConversion* make_conversion(const Shapes::Shape& shape, uint32_t number, Oid target,
                               TupleDesc to);

// The composite value. pallocs; may raise: a value may not fit its new type.
Datum row_value(const RowConversion& conversion, ChangeRecord& record, const RowPart& part);

// Whether the value of some column is not known: not in the WAL, or the column came later.
inline bool has_absent(const RowConversion& conversion, const RowPart& part) {
    return part.absent_count > 0 || (conversion.incomplete && part.offset != 0);
}

// text[] of their names, as they are called now.
Datum absent_names(const RowConversion& conversion, const ChangeRecord& record,
                   const RowPart& part);

}  // namespace pgmqtt::cdc
