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
    publishes_[id].done.reason = reason;
    ++open_;
    return id;
}

void Pending::add_store(PublishId id, const StoreRecord& record, BatchWriter& batch) {
    size_t before = batch.size();
    batch.add(record);
    bytes_ += batch.size() - before;
    if (id == kNone) return;
    ++publishes_[id].parts;
    store_publishes_.push_back(id);
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
    publish.done = {};
    free_.push_back(id);
    --open_;
}

void Pending::store_done(uint64_t batch, std::vector<FinishedPublish>& finished) {
    // Batches are stored in order, so an answer to one is an answer to those before it.
    while (!store_batches_.empty() && store_batches_.front().number <= batch) {
        StoreBatch& done = store_batches_.front();
        for (PublishId id : done.publishes) {
            part_done(id, mqtt::ReasonCode::kSuccess, {}, finished);
        }
        bytes_ -= done.records.size();
        stored_batch_ = done.number;
        store_batches_.pop_front();
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
    std::vector<PublishId> publishes;
    batch.clear();
    for (size_t i = 0; i < store_batches_.size(); ++i) {
        const StoreBatch& sent = store_batches_[i];
        batch.add_encoded(sent.records, sent.count);
        publishes.insert(publishes.end(), sent.publishes.begin(), sent.publishes.end());
    }
    batch.add_encoded(current, current_count);
    publishes.insert(publishes.end(), store_publishes_.begin(), store_publishes_.end());
    store_publishes_.swap(publishes);
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

void Pending::end_turn(const BatchWriter& store, const BatchWriter& sink) {
    if (!store.empty()) {
        store_batches_.push_back({store_batch_++, store.count(), std::string(store.records()),
                                  std::exchange(store_publishes_, {})});
    }
    if (!sink.empty()) {
        uint32_t unanswered = sink.count() - std::exchange(answered_in_turn_, 0);
        sink_batches_.push_back({sink_batch_++, unanswered, std::string(sink.records())});
    }
}

}  // namespace pgmqtt::broker
