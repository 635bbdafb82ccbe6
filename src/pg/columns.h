// Rows as one array per column, for unnest(). Lives in the transaction's memory context and is
// trivially destructible; everything here may raise.
#pragma once

#include "pg/backend.h"

#include <initializer_list>

#include "pg/datum.h"

namespace pgmqtt::pg {

class Columns {
   public:
    Columns(size_t capacity, std::initializer_list<Oid> types) {
        for (Oid type : types) {
            types_[count_] = type;
            values_[count_++] = static_cast<Datum*>(
                MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * capacity));
        }
    }

    void add(std::initializer_list<Datum> row) {
        int column = 0;
        for (Datum value : row) values_[column++][rows_] = value;
        ++rows_;
    }

    bool empty() const { return rows_ == 0; }
    void clear() { rows_ = 0; }

    // Valid until the next call.
    const Datum* arrays() {
        for (int i = 0; i < count_; ++i) arrays_[i] = array_datum(values_[i], rows_, types_[i]);
        return arrays_;
    }

   private:
    static constexpr int kMaxColumns = 16;
    Oid types_[kMaxColumns];
    Datum* values_[kMaxColumns];
    Datum arrays_[kMaxColumns];
    int count_ = 0;
    int rows_ = 0;
};

}  // namespace pgmqtt::pg
