// What the output plugin does with decoded transactions: copies the changes of mapped relations
// into the change log. Nothing is evaluated here: the catalogs of a decoding callback are those of
// the past, and an ERROR in one would come back for ever.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/transam.h>
#include <replication/output_plugin.h>
#include <replication/reorderbuffer.h>
#include <utils/rel.h>
}

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cdc/change.h"
#include "cdc/change_log.h"
#include "cdc/snapshot_message.h"
#include "pg/file_node.h"

namespace pgmqtt::cdc {

// Of a transaction that is being decoded.
FullTransactionId full_xid(TransactionId xid);

// The shapes that rows had when they were written. Few: one per relation and ALTER TABLE.
class Shapes {
   public:
    struct Shape {
        Oid relation;
        TupleDesc columns;  // in TopMemoryContext
    };

    const Shape& operator[](uint32_t number) const { return shapes_[number]; }

    // The number of `columns`' shape, which is remembered if it is new. May raise.
    uint32_t remember(Oid relation, TupleDesc columns);
    // Only when no record refers to them.
    void clear();
    size_t size() const { return shapes_.size(); }

   private:
    std::vector<Shape> shapes_;
};

// One per process: the server finds it through the plugin's callbacks.
class Capture {
   public:
    explicit Capture(ChangeLog& log);
    ~Capture();
    Capture(const Capture&) = delete;

    // The relations that mappings name.
    void set_sources(std::vector<Oid> sources);

    // What tells rows of a snapshot from what anybody can write.
    void set_snapshot_key(std::string key);

    const Shapes& shapes() const { return shapes_; }
    uint64_t changes() const { return changes_; }

    // True once since the last call when a decoding callback may have filled the caches of this
    // process with the past.
    bool take_saw_past() { return std::exchange(saw_past_, false); }

    // True once when a source may have got partitions or lost some.
    bool take_sources_changed() { return std::exchange(sources_changed_, false); }

    // Records of this file node belong to a relation without mapping: decoding them is wasted work.
    bool skips(const pg::FileNode& node) const {
        return pg::database(node) == MyDatabaseId && !skipped_.empty() &&
               skipped_.contains(pg::number(node));
    }
    void forget_skipped() { skipped_.clear(); }

    // Ours to empty the caches without forgetting what we know.
    void invalidate_caches();

    // The log after a failed round holds the beginning of a transaction that will come again.
    void reset();

   private:
    friend struct PluginCallbacks;

    struct Route {
        bool known = false;
        uint32_t shape = 0;
        std::vector<Oid> targets;
        std::vector<AttrNumber> not_in_key;  // columns that the replica identity does not cover
        bool full_identity = false;
    };

    Route& route(Relation relation);
    void find_route(Relation relation, Route& route);
    void ensure_begun(ReorderBufferTXN* txn);
    int64_t next_seq(XLogRecPtr record);
    void add_change(Relation relation, ReorderBufferTXN* txn, ReorderBufferChange* change);
    void add_truncate(ReorderBufferTXN* txn, ReorderBufferChange* change, Relation* relations,
                      int count, int number);
    void add_snapshot(ReorderBufferTXN* txn, XLogRecPtr lsn, const char* message, size_t size);
    bool is_genuine(const SnapshotHead& head, ReorderBufferTXN* txn);
    void forget(Oid relation);
    void forget_routes();

    ChangeLog& log_;
    Shapes shapes_;
    std::unordered_set<Oid> sources_;
    std::unordered_map<Oid, Route> routes_;
    std::unordered_set<Oid> skipped_;  // relation file nodes
    MemoryContext row_context_;        // emptied with each change
    std::string snapshot_key_;
    SnapshotToken token_{};  // of the transaction token_xid_, if token_known_
    TransactionId token_xid_ = 0;
    bool token_known_ = false;
    bool forgery_told_ = false;  // of that transaction
    bool begun_ = false;
    XLogRecPtr last_record_ = InvalidXLogRecPtr;
    int64_t row_of_record_ = 0;
    int hops_ = 0;  // of the transaction; see pg/hops.h
    bool saw_past_ = false;
    bool sources_changed_ = false;
    bool invalidating_ = false;
    uint64_t changes_ = 0;
};

}  // namespace pgmqtt::cdc
