#include "store/queue_log.h"

extern "C" {
#include <storage/lockdefs.h>
}

#include <algorithm>

#include "pg/datum.h"
#include "store/message_row.h"

namespace pgmqtt::store {

using broker::QueueEntry;

namespace {

// A row must fit a page: nothing of the log's own is to be in a TOAST table.
constexpr size_t kRunBytes = 7600;

bool by_number(const broker::SessionNetEffect::Delivery* a,
               const broker::SessionNetEffect::Delivery* b) {
    return a->session_id != b->session_id ? a->session_id < b->session_id
                                          : a->sequence < b->sequence;
}

void sort_by_number(std::vector<const broker::SessionNetEffect::Delivery*>& rows) {
    if (!std::is_sorted(rows.begin(), rows.end(), by_number))
        std::sort(rows.begin(), rows.end(), by_number);
}

}  // namespace

// --- before the transaction

void QueueLog::prepare(const Net& net, bool repeated) {
    net_ = &net;
    repeated_ = repeated;
    slot_ = -1;
    bytes_ = 0;
    messages_.clear();
    deliveries_.clear();
    ends_.clear();
    runs_.clear();
    run_.clear();
    for (const Net::Message& row : net.messages) {
        if (!holds(row.durability)) continue;
        if (repeated && index_.find(row.id) != 0) continue;  // it is stored
        messages_.push_back(&row);
    }
    places_.assign(messages_.size(), 0);
    for (const Net::Delivery& row : net.deliveries)
        if (holds(row.durability)) deliveries_.push_back(&row);
    for (const Net::Delivery& row : net.ended_deliveries)
        if (holds(row.durability)) ends_.push_back(&row);
    sort_by_number(deliveries_);
    sort_by_number(ends_);
}

// --- in the transaction

void QueueLog::lock() {
    bool packets =
        kind_ == LogKind::kLogged && (!net_->received.empty() || !net_->released.empty());
    if (messages_.empty() && deliveries_.empty() && ends_.empty() && !packets) return;
    slot_ = choose_segment();
}

void QueueLog::write() {
    if (slot_ < 0) return;
    append_messages(slot_);
    encode();
    append_runs(slot_);
}

// The active segment, unless it is full or a DBA has locked it and another one is free.
int QueueLog::choose_segment() {
    auto try_lock = [this](int slot) {
        SegmentName name(kind_, slot);
        return pg::try_lock(pg::table_id(name.message), RowExclusiveLock) &&
               pg::try_lock(pg::table_id(name.queue), RowExclusiveLock);
    };
    if (!ledger_.wants_new_segment() && try_lock(ledger_.active().slot))
        return ledger_.active().slot;
    for (int slot = 0; slot < kSegments; ++slot)
        if (is_free(slot) && try_lock(slot)) return begin_segment(slot);
    int slot = ledger_.empty() ? 0 : ledger_.active().slot;
    SegmentName name(kind_, slot);
    pg::lock(pg::table_id(name.message), RowExclusiveLock);
    pg::lock(pg::table_id(name.queue), RowExclusiveLock);
    return ledger_.empty() ? begin_segment(slot) : slot;
}

// If the transaction fails, the segment is there and empty.
int QueueLog::begin_segment(int slot) {
    pg::TableReader table(pg::table_id(SegmentName(kind_, slot).message));
    index_.begin(slot, pg::file_of(table.table()));
    table.close();
    ledger_.begin_segment(slot);
    return slot;
}

bool QueueLog::is_free(int slot) const {
    const auto& segments = ledger_.segments();
    return std::none_of(segments.begin(), segments.end(),
                        [slot](const auto& segment) { return segment.slot == slot; });
}

void QueueLog::append_messages(int slot) {
    if (messages_.empty()) return;
    pg::TableAppender table(pg::table_id(SegmentName(kind_, slot).message));
    MessageReader stored(kind_, index_);
    for (size_t i = 0; i < messages_.size(); ++i) {
        const Net::Message& row = *messages_[i];
        if (row.source_id == 0) {
            bytes_ += append_message(table, row.id, row.message, &places_[i]);
        } else if (TupleTableSlot* source = stored.read(row.source_id)) {
            bytes_ += append_copy(table, row.id, source, &places_[i]);
        }
    }
    stored.close();
    table.close();
}

broker::Place QueueLog::place_of(uint64_t message_id) {
    auto position =
        std::lower_bound(messages_.begin(), messages_.end(), message_id,
                         [](const Net::Message* row, uint64_t wanted) { return row->id < wanted; });
    if (position != messages_.end() && (*position)->id == message_id) {
        pg::RowPlace row = places_[static_cast<size_t>(position - messages_.begin())];
        return row == 0 ? 0 : message_place(slot_, row);
    }
    return index_.find(message_id);
}

// Nothing here calls the server.
void QueueLog::encode() {
    encode_deliveries(deliveries_, QueueEntry::Kind::kDelivery);
    encode_deliveries(ends_, QueueEntry::Kind::kEnd);
    if (kind_ == LogKind::kLogged) {
        encode_packets(net_->received, QueueEntry::Kind::kReceived);
        encode_packets(net_->released, QueueEntry::Kind::kReleased);
    }
    end_run();
}

void QueueLog::encode_deliveries(std::vector<const Net::Delivery*>& rows, QueueEntry::Kind kind) {
    for (const Net::Delivery* row : rows) {
        QueueEntry entry{.kind = kind,
                         .session_id = row->session_id,
                         .number = row->sequence,
                         .message_id = row->message_id};
        if (kind == QueueEntry::Kind::kDelivery) {
            entry.place = place_of(row->message_id);
            entry.delivery = row->delivery;
        }
        add_entry(entry);
    }
}

void QueueLog::encode_packets(const std::vector<Net::Packet>& rows, QueueEntry::Kind kind) {
    for (const Net::Packet& row : rows)
        add_entry({.kind = kind,
                   .session_id = row.session_id,
                   .number = row.packet_id,
                   .message_id = row.id});
}

void QueueLog::add_entry(const QueueEntry& entry) {
    run_.add(entry);
    if (run_.bytes().size() >= kRunBytes) end_run();
}

void QueueLog::end_run() {
    if (!run_.empty()) runs_.emplace_back(run_.bytes());
    run_.clear();
}

void QueueLog::append_runs(int slot) {
    constexpr size_t kRowOverhead = 48;
    pg::TableAppender table(pg::table_id(SegmentName(kind_, slot).queue));
    MemoryContext before = MemoryContextSwitchTo(table.context());
    for (size_t i = 0; i < runs_.size(); ++i) {
        table.add({Int64GetDatum(static_cast<int64>(next_batch_)),
                   Int32GetDatum(static_cast<int32>(i)), pg::bytea_datum(runs_[i])},
                  runs_[i].size(), nullptr);
        bytes_ += runs_[i].size() + kRowOverhead;
    }
    MemoryContextSwitchTo(before);
    table.close();
}

// --- after the commit

void QueueLog::written(const Net& net) {
    if (slot_ >= 0) {
        ++next_batch_;
        ledger_.wrote(bytes_);
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
        ledger_.add_id(messages_[i]->id);
        if (places_[i] != 0) index_.add(slot_, messages_[i]->id, places_[i]);
    }
    for (const Net::Delivery* row : deliveries_)
        ledger_.delivery(row->session_id, row->sequence, row->was, row->message_id);
    for (const Net::Delivery* row : ends_)
        ledger_.delivery_end(row->session_id, row->sequence, row->was);
    if (kind_ == LogKind::kLogged) {
        for (const Net::Packet& row : net.received) {
            ledger_.add_id(row.id);
            ledger_.received(row.session_id, row.packet_id, row.id);
        }
        for (const Net::Packet& row : net.released) ledger_.released(row.session_id, row.packet_id);
    }
    for (uint64_t id : net.ended_sessions) ledger_.session_end(id);
    for (const Net::Moved& moved : net.moved) {
        if (!holds(moved.durability)) continue;
        ledger_.moved(moved.up_to);
        asked_ = false;
    }
    if (repeated_ || ledger_.in_doubt()) doubt_ = true;
    net_ = nullptr;
}

}  // namespace pgmqtt::store
