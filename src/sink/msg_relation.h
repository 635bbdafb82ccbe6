// The relation `msg`: its columns, and messages as its rows.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/tupdesc.h>
#include <utils/tuplestore.h>
}

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "broker/sink_filter.h"
#include "sink/message.h"

namespace pgmqtt::sink {

// The columns of one sink: its captures, then those that every sink has.
class MsgColumns {
   public:
    explicit MsgColumns(std::vector<broker::Capture> captures);

    enum class Kind : uint8_t {
        kCapture,
        kTopic,
        kPayload,
        kText,
        kJson,
        kQos,
        kRetain,
        kClientId,
        kUsername,
        kContentType,
        kResponseTopic,
        kCorrelationData,
        kUserProperties,
        kReceivedAt,
        kMessageKey,
    };
    struct Column {
        const char* name;
        Kind kind;
        Oid type;
    };

    // Why `captures` cannot be columns: one has the name of another column. Empty: they can.
    static std::string conflict(const std::vector<broker::Capture>& captures);

    int count() const { return static_cast<int>(columns_.size()); }
    const Column& operator[](int column) const { return columns_[static_cast<size_t>(column)]; }
    const broker::Capture& capture(int column) const {
        return captures_[static_cast<size_t>(column)];
    }
    // -1: no such column.
    int find(std::string_view name) const;
    // "site text, topic text, ...": for hints.
    std::string list() const;

    // In the current memory context; may raise.
    TupleDesc describe() const;

   private:
    std::vector<broker::Capture> captures_;  // owns the names; never changes
    std::vector<Column> columns_;
};

// Which columns a statement mentions; what it does not mention is not computed and is NULL in msg.
using ColumnSet = std::vector<char>;

// Messages as values, for one transaction. Computed once, however often the batch is bisected.
class MsgRows {
   public:
    MsgRows(const MsgColumns& columns, std::span<const Message* const> messages)
        : columns_(columns), messages_(messages), computed_(static_cast<size_t>(columns.count())) {}

    // By place, messages that are to be in no tuplestore. What it refers to must outlive this.
    void leave_out(std::span<const char> left_out) { left_out_ = left_out; }

    // All of these inside a transaction; they may raise. begin() comes first, outside of
    // subtransactions: everything lives in a child of the memory context that is current then.
    void begin();
    // May be called again with more columns. A transient ERROR while it parses leaves as
    // pg::Raised.
    void compute(const ColumnSet& columns);
    // A tuplestore of the rows [first, last), in the current memory context.
    Tuplestorestate* tuplestore(size_t first, size_t last) const;

    TupleDesc description() const { return description_; }
    Datum* values(size_t row) const;
    bool* nulls(size_t row) const;

    // The topic has no representation in the server's encoding: the row is in no tuplestore.
    bool unfit(size_t row) const { return unfit_[row]; }
    // Nor is one that was left out.
    bool absent(size_t row) const { return unfit_[row] || (!left_out_.empty() && left_out_[row]); }

   private:
    void compute_column(int column);

    const MsgColumns& columns_;
    std::span<const Message* const> messages_;
    ColumnSet computed_;
    std::span<const char> left_out_;

    MemoryContext memory_ = nullptr;
    TupleDesc description_ = nullptr;
    Datum* values_ = nullptr;  // row by row
    bool* nulls_ = nullptr;
    bool* unfit_ = nullptr;
};

}  // namespace pgmqtt::sink
