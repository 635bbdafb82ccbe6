#include "store/message_index.h"

extern "C" {
#include <executor/tuptable.h>
}

#include <algorithm>
#include <new>

namespace pgmqtt::store {

// --- the index

void MessageIndex::clear() {
    for (Segment& segment : segments_) segment = {};
}

void MessageIndex::begin(int slot, uint32_t file) {
    segments_[slot] = {};
    segments_[slot].file = file;
}

void MessageIndex::begin_scan(int slot, uint32_t file) {
    begin(slot, file);
    segments_[slot].scanned = true;
}

void MessageIndex::add(int slot, uint64_t message_id, pg::RowPlace row) {
    Segment& segment = segments_[slot];
    if (!segment.rows.empty()) {
        if (segment.rows.back() == Row{message_id, row}) return;
        if (message_id < segment.rows.back().first) segment.sorted = false;
    }
    segment.rows.emplace_back(message_id, row);
    // Read back by session, a message comes once for each that waits for it.
    if (!segment.sorted && segment.rows.size() >= segment.tidy_at) tidy(segment);
}

void MessageIndex::tidy(Segment& segment) {
    constexpr size_t kLeast = 1 << 16;
    std::sort(segment.rows.begin(), segment.rows.end());
    segment.rows.erase(std::unique(segment.rows.begin(), segment.rows.end()), segment.rows.end());
    segment.sorted = true;
    segment.tidy_at = std::max(kLeast, segment.rows.size() * 2);
}

// The later one of an id that was written twice.
const MessageIndex::Row* MessageIndex::find(Segment& segment, uint64_t message_id) {
    if (segment.rows.empty()) return nullptr;
    if (!segment.sorted) tidy(segment);
    if (message_id < segment.rows.front().first || message_id > segment.rows.back().first)
        return nullptr;
    auto behind = std::upper_bound(segment.rows.begin(), segment.rows.end(), message_id,
                                   [](uint64_t id, const Row& row) { return id < row.first; });
    const Row& row = *std::prev(behind);
    return row.first == message_id ? &row : nullptr;
}

broker::Place MessageIndex::find(uint64_t message_id) {
    for (int slot = 0; slot < kSegments; ++slot)
        if (const Row* row = find(segments_[slot], message_id))
            return message_place(slot, row->second);
    return 0;
}

// --- reading

TupleTableSlot* MessageReader::read(uint64_t message_id) {
    for (int attempt = 0; attempt < 2; ++attempt) {
        broker::Place place = index_->find(message_id);
        int slot = slot_of(place);
        if (slot < 0) return nullptr;
        pg::TableReader& table = reader(slot);
        uint32_t file = index_->file(slot);
        if (file == 0 || file == pg::file_of(table.table())) {
            TupleTableSlot* row = table.at(row_of(place));
            bool null = false;
            if (row != nullptr &&
                static_cast<uint64_t>(DatumGetInt64(slot_getattr(row, 1, &null))) == message_id)
                return row;
            if (index_->scanned(slot)) return nullptr;
        }
        scan(slot);
    }
    return nullptr;
}

pg::TableReader& MessageReader::reader(int slot) {
    if (readers_[slot] == nullptr) {
        Oid table = pg::table_id(SegmentName(kind_, slot).message);
        readers_[slot] = new (palloc(sizeof(pg::TableReader))) pg::TableReader(table);
    }
    return *readers_[slot];
}

void MessageReader::scan(int slot) {
    pg::TableReader table(RelationGetRelid(reader(slot).table()));
    index_->begin_scan(slot, pg::file_of(table.table()));
    while (TupleTableSlot* row = table.next()) {
        bool null = false;
        auto id = static_cast<uint64_t>(DatumGetInt64(slot_getattr(row, 1, &null)));
        index_->add(slot, id, table.place());
    }
    table.close();
}

void MessageReader::close() {
    for (pg::TableReader*& reader : readers_) {
        if (reader == nullptr) continue;
        reader->close();
        reader = nullptr;
    }
}

}  // namespace pgmqtt::store
