#include "cdc/capture.h"

extern "C" {
#include <access/sysattr.h>
#include <access/transam.h>
#include <catalog/partition.h>
#include <utils/inval.h>
#include <utils/memutils.h>
#include <utils/relcache.h>
#include <utils/syscache.h>
#include <catalog/pg_class.h>
#include <replication/logical.h>
}

#include <algorithm>
#include <cstring>
#include <utility>

#include "cdc/decoding.h"
#include "cdc/row_copy.h"
#include "pg/hops.h"

namespace pgmqtt::cdc {

namespace {

// The server calls the plugin without an argument of ours.
Capture* active_capture = nullptr;

// The file node of `relation`, InvalidOid when it has none. A system cache look-up: works in the
// past.
Oid file_node(Oid relation) {
    if (!OidIsValid(relation)) return InvalidOid;
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
    if (!HeapTupleIsValid(tuple)) return InvalidOid;
    Oid node = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relfilenode;
    ReleaseSysCache(tuple);
    return node;
}

// A TRUNCATE of a partitioned table names it and all below it: it stands for all of them.
bool below_another(Relation relation, Relation* relations, int count) {
    if (!relation->rd_rel->relispartition) return false;
    List* ancestors = get_partition_ancestors(RelationGetRelid(relation));
    for (int i = 0; i < count; ++i) {
        if (list_member_oid(ancestors, RelationGetRelid(relations[i]))) return true;
    }
    return false;
}

}  // namespace

FullTransactionId full_xid(TransactionId xid) {
    FullTransactionId next = ReadNextFullTransactionId();
    uint32 epoch = EpochFromFullTransactionId(next);
    if (xid > XidFromFullTransactionId(next)) --epoch;
    return FullTransactionIdFromEpochAndXid(epoch, xid);
}

uint32_t Shapes::remember(Oid relation, TupleDesc columns) {
    // The newest first: an ALTER TABLE is rare, and going back in time rarer.
    for (size_t i = shapes_.size(); i-- > 0;) {
        if (shapes_[i].relation == relation && equalTupleDescs(shapes_[i].columns, columns)) {
            return static_cast<uint32_t>(i);
        }
    }
    MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    TupleDesc copy = CreateTupleDescCopyConstr(columns);
    MemoryContextSwitchTo(before);
    shapes_.push_back({relation, copy});
    return static_cast<uint32_t>(shapes_.size() - 1);
}

void Shapes::clear() {
    for (Shape& shape : shapes_) FreeTupleDesc(shape.columns);
    shapes_.clear();
}

Capture::Capture(ChangeLog& log)
    : log_(log),
      row_context_(
          AllocSetContextCreate(TopMemoryContext, "pgmqtt decoded row", ALLOCSET_DEFAULT_SIZES)) {
    static bool registered = false;
    if (!registered) {
        registered = true;
        CacheRegisterRelcacheCallback(
            [](Datum, Oid relation) {
                if (active_capture != nullptr) active_capture->forget(relation);
            },
            Datum{0});
    }
    active_capture = this;
}

Capture::~Capture() {
    active_capture = nullptr;
    MemoryContextDelete(row_context_);
}

void Capture::set_sources(std::vector<Oid> sources) {
    sources_ = {sources.begin(), sources.end()};
    forget_routes();
}

void Capture::forget_routes() {
    routes_.clear();
    skipped_.clear();
}

void Capture::reset() {
    begun_ = false;
    log_.clear();
    routes_.clear();
    shapes_.clear();
}

void Capture::invalidate_caches() {
    invalidating_ = true;
    InvalidateSystemCaches();
    invalidating_ = false;
}

// Invalidation messages may come at any time a callback looks something up: a route is marked, not
// taken away from whom is using it.
void Capture::forget(Oid relation) {
    if (invalidating_) return;
    if (sources_.contains(relation)) sources_changed_ = true;
    if (relation == InvalidOid) {
        for (auto& [id, route] : routes_) route.known = false;
        skipped_.clear();
        return;
    }
    auto found = routes_.find(relation);
    if (found != routes_.end()) found->second.known = false;
}

Capture::Route& Capture::route(Relation relation) {
    Route& route = routes_[RelationGetRelid(relation)];
    if (!route.known) find_route(relation, route);
    return route;
}

void Capture::find_route(Relation relation, Route& route) {
    Oid id = RelationGetRelid(relation);
    List* ancestors =
        relation->rd_rel->relispartition ? get_partition_ancestors(id) : static_cast<List*>(NIL);
    route.targets.clear();
    route.not_in_key.clear();
    if (sources_.contains(id)) route.targets.push_back(id);
    for (int i = 0; i < list_length(ancestors); ++i) {
        Oid ancestor = list_nth_oid(ancestors, i);
        if (sources_.contains(ancestor)) route.targets.push_back(ancestor);
    }
    if (route.targets.empty()) {
        Oid toast = file_node(relation->rd_rel->reltoastrelid);
        skipped_.insert(pg::number(pg::file_node(relation)));
        if (OidIsValid(toast)) skipped_.insert(toast);
        route.known = true;
        return;
    }
    TupleDesc columns = RelationGetDescr(relation);
    route.shape = shapes_.remember(id, columns);
    route.full_identity = relation->rd_rel->relreplident == REPLICA_IDENTITY_FULL;
    if (!route.full_identity) {
        Bitmapset* key = RelationGetIdentityKeyBitmap(relation);
        for (int i = 0; i < columns->natts; ++i) {
            int member = i + 1 - FirstLowInvalidHeapAttributeNumber;
            if (TupleDescAttr(columns, i)->attisdropped || bms_is_member(member, key)) continue;
            route.not_in_key.push_back(static_cast<AttrNumber>(i + 1));
        }
    }
    route.known = true;
}

void Capture::ensure_begun(ReorderBufferTXN* txn) {
    if (begun_) return;
    auto* record = reinterpret_cast<BeginRecord*>(log_.append(aligned(sizeof(BeginRecord))));
    record->size = aligned(sizeof(BeginRecord));
    record->kind = RecordKind::kBegin;
    record->xid = U64FromFullTransactionId(full_xid(txn->xid));
    record->commit_lsn = txn->final_lsn;
    record->committed_at = txn->xact_time.commit_time;
    record->hops = hops_;
    begun_ = true;
}

// Of the WAL record and the row's number in it (COPY writes many with one), so that it does not
// depend on who is mapped.
int64_t Capture::next_seq(XLogRecPtr record) {
    constexpr int64_t kRowsOfRecord = 512;  // more than fit into a page
    row_of_record_ = record == last_record_ ? row_of_record_ + 1 : 0;
    last_record_ = record;
    return static_cast<int64_t>(record) * kRowsOfRecord + row_of_record_;
}

void Capture::add_change(Relation relation, ReorderBufferTXN* txn, ReorderBufferChange* change) {
    Route& route = this->route(relation);
    if (route.targets.empty()) return;
    ensure_begun(txn);

    MemoryContext before = MemoryContextSwitchTo(row_context_);
    TupleDesc columns = RelationGetDescr(relation);
    HeapTuple new_tuple = row_in(change->data.tp.newtuple);
    HeapTuple old_tuple = row_in(change->data.tp.oldtuple);
    RowCopy new_row, old_row;
    if (new_tuple != nullptr) {
        new_row = copy_row(columns, new_tuple, route.full_identity ? old_tuple : nullptr);
    }
    if (old_tuple != nullptr) {
        old_row = copy_row(columns, old_tuple, nullptr);
        if (!route.full_identity) {
            // The rest of the old row is NULL in the WAL, which says nothing.
            old_row.absent = route.not_in_key.data();
            old_row.absent_count = static_cast<uint32_t>(route.not_in_key.size());
        }
    }
    Op op = change->action == REORDER_BUFFER_CHANGE_INSERT   ? Op::kInsert
            : change->action == REORDER_BUFFER_CHANGE_UPDATE ? Op::kUpdate
                                                             : Op::kDelete;
    int64_t seq = next_seq(change->lsn);
    for (Oid target : route.targets) {
        append_change(log_, {op, target, route.shape, seq}, new_row, old_row);
        ++changes_;
    }
    MemoryContextSwitchTo(before);
    MemoryContextReset(row_context_);
}

void Capture::add_truncate(ReorderBufferTXN* txn, ReorderBufferChange* change, Relation* relations,
                           int count, int number) {
    Relation relation = relations[number];
    Route& route = this->route(relation);
    if (route.targets.empty()) return;
    int64_t seq = next_seq(change->lsn);
    bool below = below_another(relation, relations, count);
    for (Oid target : route.targets) {
        if (below && target != RelationGetRelid(relation)) continue;
        ensure_begun(txn);
        append_change(log_, {Op::kTruncate, target, route.shape, seq}, {}, {});
        ++changes_;
    }
}

// ------------------------------------------------------------------------------------------------
// The plugin. Its callbacks are called from the server's frames: what C++ throws must end here.

namespace {

constexpr size_t kMaxErrorText = 256;
// Tables come and go; a route is soon found again.
constexpr size_t kMaxRoutes = 10000;

// Copies what was thrown to where a longjmp can leave it.
template <class Body>
void without_exceptions(Body body) {
    char text[kMaxErrorText];
    bool failed = false;
    try {
        body();
    } catch (const std::exception& error) {
        failed = true;
        strlcpy(text, error.what(), sizeof text);
    }
    if (failed) ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("%s", text)));
}

}  // namespace

struct PluginCallbacks {
    static void startup(LogicalDecodingContext* context, OutputPluginOptions* options, bool);
    static void begin(LogicalDecodingContext*, ReorderBufferTXN*) {
        active_capture->saw_past_ = true;
        active_capture->begun_ = false;
        active_capture->hops_ = 0;
        if (active_capture->routes_.size() > kMaxRoutes) active_capture->forget_routes();
    }
    static void change(LogicalDecodingContext*, ReorderBufferTXN* txn, Relation relation,
                       ReorderBufferChange* change) {
        without_exceptions([&] { active_capture->add_change(relation, txn, change); });
    }
    static void truncate(LogicalDecodingContext*, ReorderBufferTXN* txn, int count,
                         Relation* relations, ReorderBufferChange* change) {
        without_exceptions([&] {
            for (int i = 0; i < count; ++i)
                active_capture->add_truncate(txn, change, relations, count, i);
        });
    }
    static void message(LogicalDecodingContext*, ReorderBufferTXN* txn, XLogRecPtr lsn,
                        bool transactional, const char* prefix, Size size, const char* content) {
        if (!transactional) return;
        int hops = pg::hops_in_logical_message(prefix, size, content);
        active_capture->hops_ = std::max(active_capture->hops_, hops);
        if (std::strcmp(prefix, kSnapshotPrefix) != 0) return;
        without_exceptions([&] { active_capture->add_snapshot(txn, lsn, content, size); });
    }
    static void commit(LogicalDecodingContext*, ReorderBufferTXN* txn, XLogRecPtr) {
        without_exceptions([&] {
            if (!active_capture->begun_) return;
            active_capture->begun_ = false;
            size_t size = aligned(sizeof(CommitRecord));
            auto* record = reinterpret_cast<CommitRecord*>(active_capture->log_.append(size));
            record->size = size;
            record->kind = RecordKind::kCommit;
            record->end_lsn = txn->end_lsn;
        });
    }
};

void PluginCallbacks::startup(LogicalDecodingContext*, OutputPluginOptions* options, bool) {
    if (active_capture == nullptr) {
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("output plugin \"pgmqtt\" serves the broker's own slot only")));
    }
    options->output_type = OUTPUT_PLUGIN_BINARY_OUTPUT;
    options->receive_rewrites = false;
}

}  // namespace pgmqtt::cdc

#pragma GCC visibility push(default)
extern "C" void _PG_output_plugin_init(OutputPluginCallbacks* callbacks) {
    using pgmqtt::cdc::PluginCallbacks;
    callbacks->startup_cb = PluginCallbacks::startup;
    callbacks->begin_cb = PluginCallbacks::begin;
    callbacks->change_cb = PluginCallbacks::change;
    callbacks->truncate_cb = PluginCallbacks::truncate;
    callbacks->message_cb = PluginCallbacks::message;
    callbacks->commit_cb = PluginCallbacks::commit;
}
#pragma GCC visibility pop
