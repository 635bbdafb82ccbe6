#include "store/queue_segments.h"

#include <algorithm>
#include <tuple>

#include "pg/datum.h"

namespace pgmqtt::store {
namespace {

constexpr int kRowBits = 48;

}  // namespace

SegmentName::SegmentName(LogKind kind, int slot) {
    const char* prefix = kind == LogKind::kUnlogged ? "unlogged_" : "";
    snprintf(message, sizeof message, "%smessage_%d", prefix, slot + 1);
    snprintf(queue, sizeof queue, "%squeue_%d", prefix, slot + 1);
}

broker::Place message_place(int slot, pg::RowPlace row) {
    return static_cast<uint64_t>(slot + 1) << kRowBits | row;
}

int slot_of(broker::Place place) {
    uint64_t slot = place >> kRowBits;
    return slot >= 1 && slot <= kSegments ? static_cast<int>(slot) - 1 : -1;
}

pg::RowPlace row_of(broker::Place place) {
    return place & ((uint64_t{1} << kRowBits) - 1);
}

void read_runs(LogKind kind, std::vector<QueueRun>& runs) {
    MemoryContext context =
        AllocSetContextCreate(CurrentMemoryContext, "pgmqtt queue runs", ALLOCSET_DEFAULT_SIZES);
    for (int slot = 0; slot < kSegments; ++slot) {
        pg::TableReader reader(pg::table_id(SegmentName(kind, slot).queue));
        while (TupleTableSlot* row = reader.next()) {
            MemoryContext before = MemoryContextSwitchTo(context);
            slot_getallattrs(row);
            base::ByteView entries = pg::varlena_view(row->tts_values[2]);
            runs.push_back({slot, static_cast<uint64_t>(DatumGetInt64(row->tts_values[0])),
                            DatumGetInt32(row->tts_values[1]), std::string(entries)});
            MemoryContextSwitchTo(before);
            MemoryContextReset(context);
        }
        reader.close();
    }
    MemoryContextDelete(context);
}

void sort_runs(std::vector<QueueRun>& runs) {
    std::sort(runs.begin(), runs.end(), [](const QueueRun& a, const QueueRun& b) {
        return std::tie(a.batch, a.part) < std::tie(b.batch, b.part);
    });
}

}  // namespace pgmqtt::store
