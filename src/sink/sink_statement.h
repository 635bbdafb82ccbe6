// The statement of a sink: prepared once over msg, planned again when DDL asks for it.
//
// INSERT, UPDATE, DELETE, MERGE and SELECT read msg as a relation: an ephemeral named relation,
// known to this statement only, so no name in the catalog and nothing to clean up. CALL cannot read
// a relation; it runs once per message, in order, and its arguments name the columns of msg.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <executor/spi.h>
}

#include <string>

#include "sink/definition.h"
#include "sink/msg_relation.h"
#include "sink/table_locks.h"

namespace pgmqtt::sink {

class SinkStatement {
   public:
    // Both must outlive this.
    SinkStatement(const Definition& definition, const MsgColumns& columns);
    ~SinkStatement();
    SinkStatement(const SinkStatement&) = delete;

    // Runs it once for the rows [first, last), as the sink's owner. Inside a transaction; raises
    // what the statement raises. Prepares at the first call.
    void execute(MsgRows& rows, size_t first, size_t last);

    // How execute() takes the locks of its tables once it is prepared.
    void wait_for_tables(LockWait wait) { lock_wait_ = wait; }

    // Prepares and plans it and finds out whether it is of a kind that a sink may run: raises if
    // not. Inside a transaction.
    void check(TupleDesc description);

    // Whether it may ask for this column: before it is planned any statement may.
    bool may_use(MsgColumns::Kind kind) const;

   private:
    static void set_up_parser(struct ParseState* state, void* statement);
    static Node* resolve_column(struct ParseState* state, ColumnRef* column, Node* found);

    void prepare();
    void check_kind(SPIPlanPtr plan) const;
    void plan();
    void check_rights();
    void run(MsgRows& rows, size_t first, size_t last);
    void call(const MsgRows& rows, size_t row);

    const Definition& definition_;
    const MsgColumns& columns_;
    SPIPlanPtr plan_ = nullptr;
    bool is_call_ = false;
    LockWait lock_wait_ = LockWait::kQueue;
    int generation_ = -1;  // of the plan that used_ describes
    ColumnSet used_;
};

}  // namespace pgmqtt::sink
