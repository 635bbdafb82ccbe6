#include "cdc/publisher.h"

namespace pgmqtt::cdc {

Publisher::Publisher()
    : link_(pg::Worker::kCdc, pg::Worker::kCdc), batch_(broker::BatchKind::kPublish) {}

void Publisher::add(const broker::MessageView& message) {
    batch_.add(broker::PublishRecord{message});
    if (batch_.size() >= kBatchBytes) seal();
}

void Publisher::transaction_done(XLogRecPtr lsn) {
    if (!batch_.empty()) {
        batch_complete_to_ = lsn;
    } else if (!waiting_.empty()) {
        waiting_.back().complete_to = lsn;
    } else {
        done_ = lsn;
    }
}

void Publisher::seal() {
    uint64_t number = next_number_++;
    waiting_.push_back({number, std::string(batch_.finish(number)), batch_complete_to_, false});
    batch_complete_to_ = InvalidXLogRecPtr;
    batch_.clear();
    waiting_bytes_ += waiting_.back().bytes.size();
    // When the broker is away the batch waits for the next one.
    link_.send(waiting_.back().bytes);
}

void Publisher::flush() {
    if (!batch_.empty()) seal();
}

void Publisher::turn() {
    bool connected = link_.connect();
    if (connected && (!was_connected_ || epoch_ != link_.epoch())) {
        // Another broker, or the same one after we lost each other: it may not have any of these.
        epoch_ = link_.epoch();
        for (const Waiting& waiting : waiting_) link_.send(waiting.bytes);
    }
    was_connected_ = connected;
    if (!connected) return;
    base::ByteView bytes;
    while (link_.receive(bytes)) {
        broker::BatchReader reader(bytes);
        if (reader.ok() && reader.kind() == broker::BatchKind::kPublishDone) {
            acknowledge(reader.number());
        }
    }
    link_.flush();
}

// A batch that has to be stored is done later than one behind it that only had to be routed.
void Publisher::acknowledge(uint64_t number) {
    for (Waiting& waiting : waiting_) {
        if (waiting.number == number) waiting.acknowledged = true;
        if (waiting.number >= number) break;
    }
    while (!waiting_.empty() && waiting_.front().acknowledged) {
        Waiting& first = waiting_.front();
        if (first.complete_to != InvalidXLogRecPtr) done_ = first.complete_to;
        waiting_bytes_ -= first.bytes.size();
        waiting_.pop_front();
    }
}

}  // namespace pgmqtt::cdc
