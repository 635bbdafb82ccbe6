// Where the messages of a log are: 16 bytes for each, until its segment is truncated.
#pragma once

#include "pg/guard.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "pg/append_table.h"
#include "store/queue_segments.h"

namespace pgmqtt::store {

class MessageIndex {
   public:
    void clear();
    // `file`: of the table as it was when the places were true; 0: nobody knows.
    void begin(int slot, uint32_t file);
    void add(int slot, uint64_t message_id, pg::RowPlace row);
    // 0: not there.
    broker::Place find(uint64_t message_id);

    uint32_t file(int slot) const { return segments_[slot].file; }
    bool scanned(int slot) const { return segments_[slot].scanned; }
    void begin_scan(int slot, uint32_t file);

   private:
    using Row = std::pair<uint64_t, pg::RowPlace>;
    struct Segment {
        std::vector<Row> rows;  // by id
        bool sorted = true;
        size_t tidy_at = 0;
        bool scanned = false;
        uint32_t file = 0;
    };

    static void tidy(Segment& segment);
    static const Row* find(Segment& segment, uint64_t message_id);

    Segment segments_[kSegments];
};

// Reads messages of a log by their ids, in one transaction; may raise, and is trivially
// destructible. A DBA may have rewritten or truncated a table meanwhile (VACUUM FULL, CLUSTER):
// then its index is made anew by a scan.
class MessageReader {
   public:
    MessageReader(LogKind kind, MessageIndex& index) : kind_(kind), index_(&index) {}

    // A row of a message table; null if it is not there any more. Valid until the next call.
    TupleTableSlot* read(uint64_t message_id);
    void close();

   private:
    pg::TableReader& reader(int slot);
    void scan(int slot);

    LogKind kind_;
    MessageIndex* index_;
    pg::TableReader* readers_[kSegments] = {};
};

}  // namespace pgmqtt::store
