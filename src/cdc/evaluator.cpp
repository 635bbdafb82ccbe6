#include "cdc/evaluator.h"

extern "C" {
#include <mb/pg_wchar.h>
#include <utils/builtins.h>
#include <utils/jsonb.h>
#include <utils/pg_lsn.h>
#include <utils/snapmgr.h>
#include <utils/timestamp.h>
}

#include <algorithm>
#include <cstring>

#include "cdc/call_watch.h"
#include "cdc/status.h"
#include "mqtt/codec.h"
#include "mqtt/topic.h"
#include "pg/datum.h"
#include "pg/failpoint.h"
#include "pg/log.h"
#include "pg/properties.h"
#include "pg/settings.h"

namespace pgmqtt::cdc {

namespace {

// A batch is also over when its results take this much.
constexpr size_t kMaxStagedBytes = 8 << 20;

// Not the row's fault: it will work later.
bool is_transient(const pg::Error& error) {
    switch (ERRCODE_TO_CATEGORY(error.sqlstate)) {
        case ERRCODE_INSUFFICIENT_RESOURCES:
        case ERRCODE_TRANSACTION_ROLLBACK:
        case ERRCODE_OPERATOR_INTERVENTION:
            return true;
        default:
            return error.sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
    }
}

pg::Error bad_topic(std::string message) {
    return pg::make_error(ERRCODE_INVALID_PARAMETER_VALUE, std::move(message));
}

pg::Status check_topic(base::ByteView topic) {
    if (topic.empty()) return base::fail(bad_topic("topic is empty"));
    if (topic.size() > mqtt::kMaxTopicBytes) {
        return base::fail(bad_topic("topic of " + std::to_string(topic.size()) +
                                    " bytes is longer than the 65535 that MQTT allows"));
    }
    if (mqtt::begins_with_dollar(topic)) {
        return base::fail(bad_topic("topic begins with $, which is the server's"));
    }
    if (!mqtt::is_valid_topic_name(topic)) {
        return base::fail(bad_topic("topic contains a wildcard (+ or #) or an invalid character"));
    }
    return base::Done{};
}

// Wire bytes of a payload. pallocs, may raise.
base::ByteView payload_bytes(Datum value, PayloadKind kind) {
    if (kind == PayloadKind::kBytes) return pg::varlena_view(value);
    if (kind != PayloadKind::kJsonb) return pg::utf8_view(value);
    Jsonb* jsonb = DatumGetJsonbP(value);
    const char* text = JsonbToCString(nullptr, &jsonb->root, VARSIZE(jsonb));
    const char* utf8 = pg_server_to_any(text, static_cast<int>(std::strlen(text)), PG_UTF8);
    return {utf8, std::strlen(utf8)};
}

}  // namespace

struct Evaluator::RowResult {
    bool publish;
    bool has_topic;
    bool has_properties;
    base::ByteView topic;
    base::ByteView payload;
    Datum properties;
};

Evaluator::Evaluator(ChangeLog& log, const Capture& capture, Publisher& publisher)
    : log_(log), capture_(capture), publisher_(publisher) {}

Evaluator::~Evaluator() = default;

void Evaluator::set_mappings(const std::vector<MappingDefinition>& definitions, XLogRecPtr since) {
    std::unordered_map<int, Entry> entries;
    by_source_.clear();
    needs_visibility_ = true;
    for (const MappingDefinition& definition : definitions) {
        if (!definition.enabled) continue;
        auto known = entries_.find(definition.id);
        Entry& entry = entries[definition.id];
        if (known != entries_.end() && known->second.mapping->definition() == definition) {
            entry = std::move(known->second);
        } else {
            entry.mapping = std::make_unique<Mapping>(definition, since);
        }
        by_source_[definition.source].push_back(&entry);
    }
    entries_ = std::move(entries);
    // The nodes have moved with the map, not in memory; the order of several mappings is by id.
    for (auto& [source, list] : by_source_) {
        std::sort(list.begin(), list.end(), [](const Entry* a, const Entry* b) {
            return a->mapping->definition().id < b->mapping->definition().id;
        });
    }
}

Evaluator::Outcome Evaluator::run_batch() {
    done_to_ = log_.begin();
    arena_.clear();
    staged_.clear();
    letters_.clear();
    begin_counting();
    Outcome outcome = Outcome::kDone;
    pg::TransactionOptions options;
    options.read_only = true;
    options.activity = "evaluating mappings";
    pg::Status status = pg::transaction(options, [this, &outcome] {
        outcome = evaluate();
        pg::failpoint_in_guard(pg::Failpoint::kCdcEvaluate);
    });
    end_transaction();
    if (!status.ok()) {
        pg::log(WARNING, "could not evaluate mappings, will try again", status.error());
        return Outcome::kRetry;
    }
    if (!letters_.empty()) {
        status = dead_letters_.write(letters_);
        if (!status.ok()) {
            pg::log(WARNING, "could not write dead letters, will try again", status.error());
            return Outcome::kRetry;
        }
    }
    pg::failpoint(pg::Failpoint::kCdcPublish);
    publish_staged();
    report_work();
    log_.discard(done_to_);
    return outcome;
}

// Runs inside a transaction, but not inside a frame that the server jumps over: every call that may
// raise is in a guard of its own.
Evaluator::Outcome Evaluator::evaluate() {
    pg::value_or_throw(pg::guard([this] {
        row_memory_ =
            AllocSetContextCreate(CurrentMemoryContext, "pgmqtt row", ALLOCSET_DEFAULT_SIZES);
    }));
    Outcome outcome = Outcome::kDone;
    int changes = 0;
    ChangeLog::Mark mark = done_to_;
    while (changes < pg::settings.cdc_batch_size && arena_.size() < kMaxStagedBytes) {
        Record* record = log_.read(mark);
        if (record == nullptr) break;
        if (record->kind == RecordKind::kBegin) {
            const auto& begin = *static_cast<BeginRecord*>(record);
            if (needs_visibility_ && !visible(begin)) {
                outcome = changes == 0 ? Outcome::kRetry : Outcome::kDone;
                break;
            }
            begin_ = begin;
        } else if (record->kind == RecordKind::kCommit) {
            staged_.push_back({nullptr, static_cast<CommitRecord*>(record)->end_lsn, {}, {}, {}});
        } else {
            ++changes;
            outcome = evaluate_change(*static_cast<ChangeRecord*>(record));
            if (outcome != Outcome::kDone) break;
        }
        done_to_ = mark;
    }
    act_for(nullptr);
    return outcome;
}

// The WAL may be flushed a moment before everybody sees the commit; a sub-select must see it.
bool Evaluator::visible(const BeginRecord& begin) {
    bool in_progress = false;
    auto xid = static_cast<TransactionId>(begin.xid);
    pg::value_or_throw(pg::guard(
        [xid, &in_progress] { in_progress = XidInMVCCSnapshot(xid, GetActiveSnapshot()); }));
    return !in_progress;
}

Evaluator::Outcome Evaluator::evaluate_change(ChangeRecord& change) {
    auto found = by_source_.find(change.target);
    if (found == by_source_.end()) return Outcome::kDone;
    size_t arena_before = arena_.size();
    size_t staged_before = staged_.size();
    size_t letters_before = letters_.size();
    size_t counted_before = counted_.size();
    for (Entry* entry : found->second) {
        if (change.mapping != 0 && change.mapping != entry->mapping->definition().id) continue;
        Outcome outcome = evaluate_for(*entry, change);
        if (outcome == Outcome::kDone) continue;
        // The change comes again, for all its mappings.
        arena_.resize(arena_before);
        staged_.resize(staged_before);
        letters_.resize(letters_before);
        counted_.resize(counted_before);
        return outcome;
    }
    return Outcome::kDone;
}

Evaluator::Outcome Evaluator::evaluate_for(Entry& entry, ChangeRecord& change) {
    Mapping& mapping = *entry.mapping;
    if (!mapping.definition().wants(change.op) || begin_.commit_lsn < mapping.since()) {
        return Outcome::kDone;
    }
    if (!entry.begun && !entry.failed) {
        pg::Status status = begin_mapping(entry);
        if (!status.ok()) {
            entry.failed = true;
            entry.failure = std::move(status.error());
        }
    }
    if (entry.failed) {
        counted_.push_back({&mapping, false});
        return failed(entry, nullptr, entry.failure);
    }
    act_for(&mapping);
    RowResult result = {};
    pg::Status status = evaluate_row(mapping, change, result);
    counted_.push_back({&mapping, status.ok() && !result.publish});
    if (status.ok() && result.publish) status = stage(mapping, result);
    Outcome outcome = status.ok() ? Outcome::kDone : failed(entry, &result, status.error());
    if (status.ok() && result.publish) outcome = clear_old_topic(entry, change, result.topic);
    MemoryContextReset(row_memory_);
    mapping.expressions().reset();
    return outcome;
}

pg::Status Evaluator::begin_mapping(Entry& entry) {
    Mapping& mapping = *entry.mapping;
    act_for(&mapping);
    pg::Status status = pg::subtransaction([&mapping] { mapping.begin(); });
    if (!status.ok()) {
        mapping.failed();
        if (mapping.waits_for()[0] != '\0' && is_transient(status.error()))
            status.error().message = std::string("waiting for a lock on ") + mapping.waits_for();
        return status;
    }
    entry.begun = true;
    set_status(mapping.status(), "streaming");
    return status;
}

// Changes of the role cost more than a row: only when the mapping changes.
void Evaluator::act_for(Mapping* mapping) {
    if (acting_for_ == mapping) return;
    Clock::time_point now = Clock::now();
    if (acting_for_ != nullptr) acting_for_->work().time += now - acting_since_;
    acting_since_ = now;
    pg::value_or_throw(pg::guard([this, mapping] {
        if (acting_for_ != nullptr) pg::act_as_before(acting_);
        acting_for_ = nullptr;
        if (mapping == nullptr) return;
        const MappingDefinition& definition = mapping->definition();
        acting_ = pg::act_as(definition.owner, definition.search_path.c_str());
        acting_for_ = mapping;
    }));
}

pg::Status Evaluator::evaluate_row(Mapping& mapping, ChangeRecord& change, RowResult& result) {
    return pg::subtransaction([this, &mapping, &change, &result] {
        MemoryContext before = MemoryContextSwitchTo(row_memory_);
        fill_values(mapping, change);
        MappingExpressions& expressions = mapping.expressions();
        ParamListInfo values = mapping.values();
        bool is_null = false;
        if (expressions.filter.given()) {
            Datum pass = expressions.filter.evaluate(values, &is_null);
            if (is_null || !DatumGetBool(pass)) {
                MemoryContextSwitchTo(before);
                return;
            }
        }
        result.publish = true;
        Datum topic = expressions.topic.evaluate(values, &is_null);
        result.has_topic = !is_null;
        if (!is_null) result.topic = pg::utf8_view(topic);
        bool partly_known = !values->params[kAbsent].isnull && expressions.known_payload.given();
        Expression& payload = partly_known ? expressions.known_payload : expressions.payload;
        Datum value = payload.evaluate(values, &is_null);
        if (!is_null) result.payload = payload_bytes(value, payload.kind);
        if (expressions.properties.given()) {
            result.properties = expressions.properties.evaluate(values, &is_null);
            result.has_properties = !is_null;
        }
        MemoryContextSwitchTo(before);
    });
}

// Inside a subtransaction: may raise.
void Evaluator::fill_values(Mapping& mapping, ChangeRecord& change) {
    ParamListInfo values = mapping.values();
    const RowConversion* rows = conversion(mapping, change.shape);
    bool has_new = change.new_row.offset != 0;
    bool has_old = change.old_row.offset != 0;
    // A value that is converted may be one of a domain.
    Scope& scope = mapping.expressions().scope;
    CallWatch watch = {};
    watch.begin_evaluating(scope.calls, scope.row_type, nullptr, scope.checked);
    set_value(values, kNew, has_new ? row_value(*rows, change, change.new_row) : Datum{0},
              !has_new);
    set_value(values, kOld, has_old ? row_value(*rows, change, change.old_row) : Datum{0},
              !has_old);
    watch.end();
    const RowPart& shown = has_new ? change.new_row : change.old_row;
    bool absent = has_absent(*rows, shown);
    set_value(values, kAbsent, absent ? absent_names(*rows, change, shown) : Datum{0}, !absent);
    Oid relation = capture_.shapes()[change.shape].relation;
    Oid partition = OidIsValid(change.partition) ? change.partition : relation;
    set_value(values, kPartition, ObjectIdGetDatum(partition));
    set_value(values, kSeq, Int64GetDatum(change.seq));
    set_value(values, kOp, CStringGetTextDatum(op_name(change.op)));
    set_value(values, kLsn, LSNGetDatum(begin_.commit_lsn));
    set_value(values, kXid, Int64GetDatum(static_cast<int64>(begin_.xid)));
    set_value(values, kCommitTs, TimestampTzGetDatum(begin_.committed_at));
}

RowConversion* Evaluator::conversion(Mapping& mapping, uint32_t shape) {
    Oid target = mapping.definition().source;
    for (RowConversion* known : conversions_) {
        if (known->shape == shape && known->target == target) return known;
    }
    // Beyond the row: of the transaction.
    MemoryContext before = MemoryContextSwitchTo(MemoryContextGetParent(row_memory_));
    RowConversion* made =
        make_conversion(capture_.shapes()[shape], shape, target, mapping.columns());
    MemoryContextSwitchTo(before);
    conversions_.push_back(made);
    return made;
}

Evaluator::Span Evaluator::keep(base::ByteView bytes) {
    Span span{arena_.size(), bytes.size()};
    arena_.append(bytes);
    return span;
}

pg::Status Evaluator::stage(Mapping& mapping, const RowResult& result) {
    if (!result.has_topic) return base::fail(bad_topic("topic is NULL"));
    pg::Status status = check_topic(result.topic);
    if (!status.ok()) return status;
    size_t limit = static_cast<size_t>(pg::settings.max_packet_size);
    if (result.topic.size() + result.payload.size() > limit) {
        return base::fail(
            pg::make_error(ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                           "payload of " + std::to_string(result.payload.size()) +
                               " bytes is larger than pgmqtt.max_packet_size allows"));
    }
    Staged staged;
    staged.mapping = &mapping;
    if (result.has_properties || begin_.hops > 0) {
        try {
            std::string encoded;
            if (result.has_properties) encoded = pg::properties_from_jsonb(result.properties);
            if (begin_.hops > 0) pg::set_hops(encoded, begin_.hops);
            mqtt::Properties properties;
            if (mqtt::decode_message_properties(encoded, properties).ok() &&
                properties.message_expiry_interval) {
                staged.expires_at = base::read_clocks().wall +
                                    std::chrono::seconds(*properties.message_expiry_interval);
            }
            staged.properties = keep(encoded);
        } catch (const pg::Raised& raised) {
            return base::fail(pg::Error(raised.error()));
        }
    }
    staged.topic = keep(result.topic);
    staged.payload = keep(result.payload);
    staged_.push_back(staged);
    return base::Done{};
}

// An UPDATE that gives a row another topic would leave the retained message of the old one behind:
// what the expression says of the row as it was is cleared. Where the replica identity does not
// tell enough of that row there is nothing to clear.
Evaluator::Outcome Evaluator::clear_old_topic(Entry& entry, const ChangeRecord& change,
                                              base::ByteView topic) {
    Mapping& mapping = *entry.mapping;
    bool may_move = mapping.definition().retain && change.op == Op::kUpdate;
    if (!may_move || change.old_row.offset == 0) return Outcome::kDone;
    base::ByteView old_topic;
    pg::Status status = pg::subtransaction([this, &mapping, &old_topic] {
        MemoryContext before = MemoryContextSwitchTo(row_memory_);
        ParamListInfo values = mapping.values();
        set_value(values, kNew, values->params[kOld].value);
        bool is_null = false;
        Datum value = mapping.expressions().topic.evaluate(values, &is_null);
        if (!is_null) old_topic = pg::utf8_view(value);
        MemoryContextSwitchTo(before);
    });
    if (!status.ok()) {
        mapping.failed();
        entry.begun = false;
        if (!is_transient(status.error())) return Outcome::kDone;
        set_status(mapping.status(), "waiting", status.error().message);
        return Outcome::kRetry;
    }
    if (old_topic == topic || !check_topic(old_topic).ok()) return Outcome::kDone;
    Staged staged;
    staged.mapping = &mapping;
    staged.topic = keep(old_topic);
    staged.properties = staged_.back().properties;  // of the same change; and no payload
    staged_.push_back(staged);
    return Outcome::kDone;
}

Evaluator::Outcome Evaluator::failed(Entry& entry, const RowResult* result, pg::Error error) {
    Mapping& mapping = *entry.mapping;
    const MappingDefinition& definition = mapping.definition();
    if (result != nullptr) {
        // The evaluator's state belonged to the subtransaction that is gone.
        mapping.failed();
        entry.begun = false;
    }
    if (is_transient(error)) {
        set_status(mapping.status(), "waiting", error.message);
        return Outcome::kRetry;
    }
    const char* state = definition.stall ? "stalled" : entry.failed ? "error" : "streaming";
    set_status(mapping.status(), state, error.message);
    if (definition.stall) return Outcome::kStall;

    if (mapping.status() != nullptr) ++mapping.status()->errors;
    ++pg::shared()->cdc_errors;
    // A mapping that cannot be evaluated at all says so once per transaction, not once per row.
    if (entry.failed && entry.failure_told == begin_.commit_lsn) return Outcome::kDone;
    if (entry.failed) entry.failure_told = begin_.commit_lsn;
    DeadLetter letter;
    letter.name = definition.name;
    letter.lsn = begin_.commit_lsn;
    letter.qos = definition.qos;
    letter.retain = definition.retain;
    letter.error = std::move(error);
    if (result != nullptr && result->has_topic) {
        letter.topic = std::string(result->topic);
        letter.payload = std::string(result->payload);
    }
    letters_.push_back(std::move(letter));
    return Outcome::kDone;
}

// What the transaction's end has taken away.
void Evaluator::end_transaction() {
    for (auto& [id, entry] : entries_) {
        if (entry.begun) {
            bool looks_at_tables = false;
            entry.mapping->expressions().for_each(
                [&](const Expression& one) { looks_at_tables |= one.state == nullptr; });
            entry.needs_visibility = looks_at_tables;
        }
        entry.mapping->failed();
        entry.begun = false;
        entry.failed = false;
    }
    needs_visibility_ = std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
        return entry.second.needs_visibility;
    });
    conversions_.clear();
    row_memory_ = nullptr;
    acting_for_ = nullptr;
}

void Evaluator::publish_staged() {
    base::WallTime now = base::read_clocks().wall;
    auto view = [this](Span span) { return base::ByteView(arena_).substr(span.offset, span.size); };
    for (const Staged& staged : staged_) {
        if (staged.mapping == nullptr) {
            publisher_.transaction_done(staged.complete_to);
            continue;
        }
        const MappingDefinition& definition = staged.mapping->definition();
        broker::MessageView message;
        message.topic = view(staged.topic);
        message.payload = view(staged.payload);
        message.properties = view(staged.properties);
        message.qos = static_cast<mqtt::Qos>(definition.qos);
        message.retain = definition.retain;
        message.received_at = now;
        message.expires_at = staged.expires_at;
        publisher_.add(message);
        if (staged.mapping->status() != nullptr) ++staged.mapping->status()->published;
        ++pg::shared()->cdc_published;
    }
    publisher_.flush();
}

}  // namespace pgmqtt::cdc
