// What the expressions of a mapping may name: new, old, op, lsn, xid, commit_ts,
// absent, partition, seq.
#pragma once

#include "pg/backend.h"

#include "cdc/calls.h"

extern "C" {
#include <nodes/params.h>
}

namespace pgmqtt::cdc {

enum Name : int { kNew, kOld, kOp, kLsn, kXid, kCommitTs, kAbsent, kPartition, kSeq };
inline constexpr int kNameCount = 9;

// Given to the parser of an expression. Must outlive the plan, which is parsed again after DDL.
struct Scope {
    Oid relation;    // source of the mapping
    Oid row_type;    // of new and old
    unsigned used;   // bit per Name that an expression named; the parser adds
    Calls calls;     // of all expressions of the mapping
    uint64 checked;  // of the row type; see CallWatch
};

// As SPI_prepare_extended() wants it; `scope` is a Scope.
void set_up_parser(struct ParseState* parser, void* scope);

// Values for one row, all NULL at first. pallocs.
ParamListInfo make_values(const Scope& scope);

inline void set_value(ParamListInfo values, Name name, Datum value, bool is_null = false) {
    values->params[name].value = value;
    values->params[name].isnull = is_null;
}

// "id, name, price": for messages. pallocs, may raise.
const char* column_list(Oid relation);

}  // namespace pgmqtt::cdc
