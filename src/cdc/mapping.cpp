#include "cdc/mapping.h"

extern "C" {
#include <catalog/pg_type.h>
#include <storage/lmgr.h>
#include <utils/array.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
#include <utils/typcache.h>
}

#include "cdc/call_check.h"
#include "cdc/call_watch.h"
#include "cdc/source.h"
#include "cdc/status.h"
#include "pg/transaction.h"

namespace pgmqtt::cdc {

unsigned operation_bit(const char* word) {
    for (Op op : {Op::kInsert, Op::kUpdate, Op::kDelete, Op::kTruncate}) {
        if (pg_strcasecmp(word, op_name(op)) == 0) return 1U << static_cast<int>(op);
    }
    return 0;
}

const char* default_payload(bool retain) {
    // Retained, the message of a deleted row has to go, and an empty payload does that.
    return retain ? "pg_catalog.to_jsonb(new)" : "pg_catalog.to_jsonb(coalesce(new, old))";
}

namespace {

// --- pgmqtt.mapping

constexpr const char* kSelectMappings =
    "SELECT id, name, source::oid, topic, payload, filter, properties, operations, qos, retain,"
    " on_error, owner::oid, search_path, calls, enabled FROM pgmqtt.mapping ORDER BY id";

enum Column : int {
    kId = 1,
    kColumnName,
    kSource,
    kTopic,
    kPayload,
    kFilter,
    kProperties,
    kOperations,
    kQos,
    kRetain,
    kOnError,
    kOwner,
    kSearchPath,
    kCalls,
    kEnabled,
    kColumnEnd
};

// Values of the server, before anything with a destructor.
struct PlainRow {
    Datum values[kColumnEnd];
    bool nulls[kColumnEnd];
    const char* texts[kColumnEnd];
    unsigned operations;
    Calls calls;
};

unsigned operations_mask(Datum array) {
    Datum* words;
    bool* nulls;
    int count;
    deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &words, &nulls,
                      &count);
    // A snapshot is what somebody asks for, whatever else the mapping publishes.
    unsigned mask = 1U << static_cast<int>(Op::kSnapshot);
    for (int i = 0; i < count; ++i) {
        if (!nulls[i]) mask |= operation_bit(TextDatumGetCString(words[i]));
    }
    return mask;
}

PlainRow read_row(HeapTuple tuple, TupleDesc columns) {
    PlainRow row = {};
    for (int i = kId; i < kColumnEnd; ++i) {
        row.values[i] = SPI_getbinval(tuple, columns, i, &row.nulls[i]);
        if (!row.nulls[i] && TupleDescAttr(columns, i - 1)->atttypid == TEXTOID) {
            row.texts[i] = TextDatumGetCString(row.values[i]);
        }
    }
    row.operations = operations_mask(row.values[kOperations]);
    row.calls = known_calls(row.nulls[kCalls] ? nullptr : DatumGetArrayTypeP(row.values[kCalls]));
    return row;
}

std::optional<std::string> optional_text(const char* text) {
    return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

MappingDefinition make_definition(const PlainRow& row) {
    MappingDefinition definition;
    definition.id = DatumGetInt32(row.values[kId]);
    definition.name = row.texts[kColumnName];
    definition.source = DatumGetObjectId(row.values[kSource]);
    definition.topic = row.texts[kTopic];
    definition.payload = optional_text(row.texts[kPayload]);
    definition.filter = optional_text(row.texts[kFilter]);
    definition.properties = optional_text(row.texts[kProperties]);
    definition.operations = row.operations;
    definition.qos = DatumGetInt32(row.values[kQos]);
    definition.retain = DatumGetBool(row.values[kRetain]);
    definition.stall = std::string_view(row.texts[kOnError]) == "stall";
    definition.owner = DatumGetObjectId(row.values[kOwner]);
    definition.search_path = row.texts[kSearchPath];
    if (row.calls.rule == Calls::Rule::kCompare) {
        definition.calls.emplace(row.calls.known, row.calls.known + row.calls.known_count);
    }
    definition.enabled = DatumGetBool(row.values[kEnabled]);
    return definition;
}

const char* c_text(const std::optional<std::string>& text) {
    return text ? text->c_str() : nullptr;
}

}  // namespace

pg::Result<std::vector<MappingDefinition>> load_mappings() {
    std::vector<MappingDefinition> definitions;
    pg::TransactionOptions options;
    options.read_only = true;
    options.activity = "reading the mappings";
    pg::Status status = pg::transaction(options, [&definitions] {
        if (SPI_execute(kSelectMappings, true, 0) != SPI_OK_SELECT) elog(ERROR, "no mappings");
        for (uint64 i = 0; i < SPI_processed; ++i) {
            PlainRow row = read_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
            definitions.push_back(make_definition(row));
        }
    });
    if (!status.ok()) return base::fail(std::move(status.error()));
    return definitions;
}

// ------------------------------------------------------------------------------------------------

void MappingExpressions::prepare(Oid source, const Texts& texts) {
    scope = {source, get_rel_type_id(source), 0, texts.calls, 0};
    check_type_calls(scope.row_type, scope.calls);
    topic.prepare(Purpose::kTopic, texts.topic, &scope);
    if (texts.payload != nullptr) {
        payload.prepare(Purpose::kPayload, texts.payload, &scope);
    } else {
        payload.prepare(Purpose::kPayload, default_payload(texts.retain), &scope);
        const char* known =
            psprintf("%s OPERATOR(pg_catalog.-) absent", default_payload(texts.retain));
        known_payload.prepare(Purpose::kPayload, known, &scope);
    }
    if (texts.filter != nullptr) filter.prepare(Purpose::kFilter, texts.filter, &scope);
    if (texts.properties != nullptr) {
        properties.prepare(Purpose::kProperties, texts.properties, &scope);
    }
}

void MappingExpressions::keep() {
    for_each([](Expression& one) { one.keep(); });
}

void MappingExpressions::release() {
    for_each([](Expression& one) { one.release(); });
}

void MappingExpressions::begin(ParamListInfo values) {
    // Casts and domains are changed without a change of the table, and values are converted to the
    // types of its columns before any expression sees them.
    scope.checked = type_changes();
    check_type_calls(scope.row_type, scope.calls);
    for_each([values](Expression& one) { one.begin(values); });
}

void MappingExpressions::end() {
    for_each([](Expression& one) { one.end(); });
}

void MappingExpressions::reset() {
    for_each([](Expression& one) { one.reset(); });
}

Mapping::Mapping(MappingDefinition definition, XLogRecPtr since)
    : definition_(std::move(definition)), since_(since), status_(claim_status(definition_.id)) {
    if (definition_.calls) {
        for (const std::string& name : *definition_.calls) known_calls_.push_back(name.c_str());
    }
    set_status(status_, "streaming");
}

Mapping::~Mapping() {
    pg::Status ignored = pg::guard([this] {
        expressions_.release();
        if (columns_ != nullptr) FreeTupleDesc(columns_);
    });
    static_cast<void>(ignored);
}

Calls Mapping::calls() const {
    if (!definition_.calls) return {Calls::Rule::kAnything, nullptr, 0, NIL};
    return {Calls::Rule::kCompare, known_calls_.data(), static_cast<int>(known_calls_.size()), NIL};
}

void Mapping::refresh() {
    // Until the batch's transaction ends: a row is read by the row type that was current when its
    // value was made, so that must not change in between.
    waits_for_[0] = '\0';
    if (!ConditionalLockRelationOid(definition_.source, AccessShareLock)) {
        // Noted before: waiting ends with an ERROR after lock_timeout.
        const char* name = get_rel_name(definition_.source);
        strlcpy(waits_for_, name == nullptr ? "its table" : name, sizeof waits_for_);
        LockRelationOid(definition_.source, AccessShareLock);
        waits_for_[0] = '\0';
    }
    check_source(definition_.source, definition_.owner);
    TupleDesc current = lookup_rowtype_tupdesc_copy(get_rel_type_id(definition_.source), -1);
    if (prepared_ && equalTupleDescs(current, columns_)) return;
    expressions_.release();
    prepared_ = false;
    expressions_.prepare(
        definition_.source,
        {definition_.topic.c_str(), c_text(definition_.payload), c_text(definition_.filter),
         c_text(definition_.properties), definition_.retain, calls()});
    expressions_.keep();
    if (columns_ != nullptr) FreeTupleDesc(columns_);
    columns_ = nullptr;
    MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    columns_ = CreateTupleDescCopyConstr(current);
    columns_->tdtypeid = current->tdtypeid;
    columns_->tdtypmod = current->tdtypmod;
    MemoryContextSwitchTo(before);
    prepared_ = true;
}

void Mapping::begin() {
    refresh();
    values_ = make_values(expressions_.scope);
    expressions_.begin(values_);
}

void Mapping::end() {
    expressions_.end();
    values_ = nullptr;
}

void Mapping::failed() {
    values_ = nullptr;
    expressions_.for_each([](Expression& one) { one.forget(); });
}

}  // namespace pgmqtt::cdc
