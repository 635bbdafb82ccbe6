// A prepared statement that lives as long as its object and is planned again when DDL asks for it.
#pragma once

#include "pg/guard.h"

extern "C" {
#include "executor/spi.h"
}

#include <initializer_list>
#include <string>
#include <vector>

namespace pgmqtt::pg {

// All members are to be called inside transaction() (SPI connected); execute() and prepare() may
// raise.
class Statement {
   public:
    Statement(const char* sql, std::initializer_list<Oid> parameter_types);
    ~Statement();
    Statement(const Statement&) = delete;

    // Prepares at the first call. Rows are in SPI_tuptable, their number is returned.
    // `nulls`: nullptr, or one 'n' or ' ' per parameter as SPI wants it.
    uint64 execute(const Datum* values, const char* nulls = nullptr, bool read_only = false,
                   long limit = 0);

   private:
    const char* sql_;  // static text
    std::vector<Oid> parameter_types_;
    SPIPlanPtr plan_ = nullptr;
};

}  // namespace pgmqtt::pg
