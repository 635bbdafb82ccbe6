#include "broker/pending.h"

#include <algorithm>
#include <utility>

namespace pgmqtt::broker {

Pending::PublishId Pending::open(mqtt::ReasonCode reason) {
    PublishId id;
    if (free_.empty()) {
        id = static_cast<PublishId>(publishes_.size());
        publishes_.emplace_back();
    } else {
        id = free_.back();
        free_.pop_back();
    }
    publishes_[id].number = ++last_number_;
    publishes_[id].done.reason = reason;
    ++open_;
    return id;
}

void Pending::add_store(PublishId id, const StoreRecord& record, BatchWriter& batch, Part part) {
    size_t before = batch.size();
    batch.add(record);
    bytes_ += batch.size() - before;
    if (id == kNone) return;
    Publish& publish = publishes_[id];
    ++publish.parts;
    if (part == Part::kDeliveries) publish.deliveries_open = true;
    store_parts_.push_back({{id, publish.number}, part});
}

Pending::Ticket Pending::add_delivery(PublishId id) {
    ++publishes_[id].deliveries;
    return {id, publishes_[id].number};
}

bool Pending::is_over(const StorePart& part) const {
    const Publish& publish = publishes_[part.publish.id];
    return publish.number != part.publish.number ||
           (part.part == Part::kDeliveries && !publish.deliveries_open);
}

void Pending::delivery_done(const Ticket& ticket, std::vector<FinishedPublish>& finished) {
    if (ticket.id == kNone || is_over({ticket, Part::kDeliveries})) return;
    Publish& publish = publishes_[ticket.id];
    if (--publish.deliveries > 0) return;
    publish.deliveries_open = false;
    part_done(ticket.id, mqtt::ReasonCode::kSuccess, {}, finished);
}

void Pending::add_sink(PublishId id, SinkRecord& record, BatchWriter& batch) {
    record.token = first_token_ + sink_parts_.size();
    size_t offset = batch.records().size();
    batch.add(record);
    size_t size = batch.records().size() - offset;
    sink_parts_.push_back({id, sink_batch_, offset, size, false});
    bytes_ += size;
    ++publishes_[id].parts;
}

void Pending::part_done(PublishId id, mqtt::ReasonCode reason, ByteView reason_string,
                        std::vector<FinishedPublish>& finished) {
    Publish& publish = publishes_[id];
    // The worst code wins; all errors are above all successes.
    if (reason > publish.done.reason) {
        publish.done.reason = reason;
        publish.done.reason_string = reason_string;
    }
    if (--publish.parts > 0) return;
    finished.push_back(std::move(publish.done));
    uint64_t number = publish.number;
    publish = {};
    publish.number = number;
    free_.push_back(id);
    --open_;
}

void Pending::store_done(uint64_t batch, std::vector<FinishedPublish>& finished) {
    // Batches are stored in order, so an answer to one is an answer to those before it.
    while (!store_batches_.empty() && store_batches_.front().number <= batch) {
        StoreBatch& done = store_batches_.front();
        for (const StorePart& part : done.parts) {
            if (is_over(part)) continue;
            if (part.part == Part::kDeliveries) {
                publishes_[part.publish.id].deliveries_open = false;
            }
            part_done(part.publish.id, mqtt::ReasonCode::kSuccess, {}, finished);
        }
        bytes_ -= done.records.size();
        stored_batch_ = done.number;
        store_batches_.pop_front();
    }
}

base::MonoTime Pending::first_unreported() const {
    if (store_batches_.empty() ||
        store_batches_[store_batches_.size() - 1].number <= overdue_batch_)
        return base::kNever;
    uint64_t first = store_batches_[0].number;
    return store_batches_[overdue_batch_ < first ? 0 : overdue_batch_ + 1 - first].sent;
}

void Pending::overdue(base::MonoTime sent, std::vector<PublishId>& waiting) {
    while (first_unreported() <= sent && first_unreported() != base::kNever) {
        uint64_t first = store_batches_[0].number;
        overdue_batch_ = std::max(overdue_batch_ + 1, first);
        for (const StorePart& part : store_batches_[overdue_batch_ - first].parts) {
            if (!is_over(part)) waiting.push_back(part.publish.id);
        }
    }
}

Pending::SinkBatch* Pending::find_sink_batch(uint64_t number) {
    if (sink_batches_.empty()) return nullptr;
    uint64_t index = number - sink_batches_.front().number;
    return index < sink_batches_.size() ? &sink_batches_[index] : nullptr;
}

void Pending::sink_done(const CompletionRecord& completion,
                        std::vector<FinishedPublish>& finished) {
    uint64_t index = completion.token - first_token_;
    if (index >= sink_parts_.size() || sink_parts_[index].done) return;
    SinkPart& part = sink_parts_[index];
    part.done = true;
    bytes_ -= part.size;
    if (SinkBatch* batch = find_sink_batch(part.batch)) {
        if (--batch->unanswered == 0) std::string().swap(batch->records);
    } else {
        ++answered_in_turn_;
    }
    part_done(part.publish, completion.reason, completion.reason_string, finished);
    while (!sink_parts_.empty() && sink_parts_.front().done) {
        sink_parts_.pop_front();
        ++first_token_;
    }
    while (!sink_batches_.empty() && sink_batches_.front().unanswered == 0) {
        sink_batches_.pop_front();
    }
}

void Pending::resend_store(BatchWriter& batch) {
    std::string current(batch.records());
    uint32_t current_count = batch.count();
    std::vector<StorePart> parts;
    batch.clear();
    if (!store_batches_.empty()) {
        resent_since_ = std::min(resent_since_, store_batches_.front().sent);
    }
    for (size_t i = 0; i < store_batches_.size(); ++i) {
        const StoreBatch& sent = store_batches_[i];
        batch.add_encoded(sent.records, sent.count);
        parts.insert(parts.end(), sent.parts.begin(), sent.parts.end());
    }
    batch.add_encoded(current, current_count);
    parts.insert(parts.end(), store_parts_.begin(), store_parts_.end());
    store_parts_.swap(parts);
    store_batches_.clear();
}

void Pending::resend_sink(BatchWriter& batch) {
    std::string current(batch.records());
    batch.clear();
    for (size_t i = 0; i < sink_parts_.size(); ++i) {
        SinkPart& part = sink_parts_[i];
        if (part.done) continue;
        const SinkBatch* sent = find_sink_batch(part.batch);
        ByteView bytes = sent != nullptr ? ByteView(sent->records) : ByteView(current);
        size_t offset = batch.records().size();
        batch.add_encoded(bytes.substr(part.offset, part.size), 1);
        part.batch = sink_batch_;
        part.offset = offset;
    }
    sink_batches_.clear();
    answered_in_turn_ = 0;
}

void Pending::end_turn(const BatchWriter& store, const BatchWriter& sink, base::MonoTime now) {
    if (!store.empty()) {
        base::MonoTime sent = std::min(now, std::exchange(resent_since_, base::kNever));
        store_batches_.push_back({store_batch_++, store.count(), sent, std::string(store.records()),
                                  std::exchange(store_parts_, {})});
    }
    if (!sink.empty()) {
        uint32_t unanswered = sink.count() - std::exchange(answered_in_turn_, 0);
        sink_batches_.push_back({sink_batch_++, unanswered, std::string(sink.records())});
    }
}

}  // namespace pgmqtt::broker
