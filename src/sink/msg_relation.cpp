#include "sink/msg_relation.h"

extern "C" {
#include <catalog/pg_type_d.h>
#include <utils/memutils.h>
}

#include <utility>

#include "sink/msg_values.h"

namespace pgmqtt::sink {
namespace {

using Kind = MsgColumns::Kind;

constexpr MsgColumns::Column kFixedColumns[] = {
    {"topic", Kind::kTopic, TEXTOID},
    {"payload", Kind::kPayload, BYTEAOID},
    {"text", Kind::kText, TEXTOID},
    {"json", Kind::kJson, JSONBOID},
    {"qos", Kind::kQos, INT4OID},
    {"retain", Kind::kRetain, BOOLOID},
    {"client_id", Kind::kClientId, TEXTOID},
    {"username", Kind::kUsername, TEXTOID},
    {"content_type", Kind::kContentType, TEXTOID},
    {"response_topic", Kind::kResponseTopic, TEXTOID},
    {"correlation_data", Kind::kCorrelationData, BYTEAOID},
    {"user_properties", Kind::kUserProperties, JSONBOID},
    {"received_at", Kind::kReceivedAt, TIMESTAMPTZOID},
    {"message_key", Kind::kMessageKey, TEXTOID},
};

const char* type_name(Oid type) {
    switch (type) {
        case TEXTOID:
            return "text";
        case BYTEAOID:
            return "bytea";
        case JSONBOID:
            return "jsonb";
        case INT4OID:
            return "integer";
        case BOOLOID:
            return "boolean";
        default:
            return "timestamptz";
    }
}

// Memory for a tuplestore before it goes to a file. A batch of usual size stays below.
constexpr int kTuplestoreKilobytes = 32 * 1024;

}  // namespace

MsgColumns::MsgColumns(std::vector<broker::Capture> captures) : captures_(std::move(captures)) {
    for (const broker::Capture& capture : captures_)
        columns_.push_back({capture.name.c_str(), Kind::kCapture, TEXTOID});
    columns_.insert(columns_.end(), std::begin(kFixedColumns), std::end(kFixedColumns));
}

std::string MsgColumns::conflict(const std::vector<broker::Capture>& captures) {
    for (const broker::Capture& capture : captures)
        for (const Column& column : kFixedColumns)
            if (capture.name == column.name)
                return "capture \"" + capture.name + "\" has the name of a column of msg";
    return {};
}

int MsgColumns::find(std::string_view name) const {
    for (int column = 0; column < count(); ++column)
        if (name == (*this)[column].name) return column;
    return -1;
}

std::string MsgColumns::list() const {
    std::string text;
    for (const Column& column : columns_) {
        if (!text.empty()) text += ", ";
        text += std::string(column.name) + " " + type_name(column.type);
    }
    return text;
}

TupleDesc MsgColumns::describe() const {
    TupleDesc description = CreateTemplateTupleDesc(count());
    for (int column = 0; column < count(); ++column)
        TupleDescInitEntry(description, static_cast<AttrNumber>(column + 1), (*this)[column].name,
                           (*this)[column].type, -1, 0);
    return description;
}

Datum* MsgRows::values(size_t row) const {
    return values_ + row * static_cast<size_t>(columns_.count());
}

bool* MsgRows::nulls(size_t row) const {
    return nulls_ + row * static_cast<size_t>(columns_.count());
}

void MsgRows::begin() {
    memory_ = AllocSetContextCreate(CurrentMemoryContext, "pgmqtt msg", ALLOCSET_DEFAULT_SIZES);
    MemoryContext caller = MemoryContextSwitchTo(memory_);
    description_ = columns_.describe();
    size_t cells = messages_.size() * static_cast<size_t>(columns_.count());
    values_ = static_cast<Datum*>(
        palloc_extended(sizeof(Datum) * (cells + 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO));
    nulls_ = static_cast<bool*>(palloc_extended(cells + 1, MCXT_ALLOC_HUGE));
    memset(nulls_, 1, cells + 1);
    unfit_ = static_cast<bool*>(palloc0(messages_.size() + 1));
    MemoryContextSwitchTo(caller);
}

void MsgRows::compute(const ColumnSet& columns) {
    for (int column = 0; column < columns_.count(); ++column) {
        size_t index = static_cast<size_t>(column);
        if (!columns[index] || computed_[index]) continue;
        compute_column(column);
        computed_[index] = 1;
    }
}

void MsgRows::compute_column(int column) {
    MemoryContext caller = MemoryContextSwitchTo(memory_);
    Kind kind = columns_[column].kind;
    for (size_t row = 0; row < messages_.size(); ++row) {
        const Message& message = *messages_[row];
        Datum* value = values(row) + column;
        bool* null = nulls(row) + column;
        if (kind == Kind::kCapture) {
            auto text = broker::captured_text(columns_.capture(column), message.topic);
            if (!text) continue;
            if (text_value(*text, value))
                *null = false;
            else
                unfit_[row] = true;
        } else if (message_value(message, kind, value)) {
            *null = false;
        } else if (kind == Kind::kTopic) {
            unfit_[row] = true;
        }
    }
    MemoryContextSwitchTo(caller);
}

Tuplestorestate* MsgRows::tuplestore(size_t first, size_t last) const {
    Tuplestorestate* store = tuplestore_begin_heap(false, false, kTuplestoreKilobytes);
    for (size_t row = first; row < last; ++row)
        if (!absent(row)) tuplestore_putvalues(store, description_, values(row), nulls(row));
    return store;
}

}  // namespace pgmqtt::sink
