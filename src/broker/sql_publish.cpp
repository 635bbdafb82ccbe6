// Messages that do not come in a PUBLISH: from SQL, from the table of retained messages.
#include <algorithm>
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

void Broker::State::load_retained(const MessageView& stored, Now now) {
    MessagePtr message = make_message(stored, now);
    message->retain = true;
    message->charge(message_bytes_);
    // Limits hold for what is new; the table is not thinned out by a restart. What expired
    // meanwhile goes at the first tick, from the table as well.
    retained_.set(std::move(message));
}

void Broker::State::publish(PublishSource source, uint64_t batch, BatchReader& records, Now now) {
    begin_input(now);
    uint64_t ticket = first_sql_batch_ + sql_batches_.size();
    sql_batches_.push_back({source, batch, 0});
    Origin origin;
    origin.paced = true;
    PublishRecord record;
    while (records.next(record)) {
        ++counters_.publishes_from_sql;
        Routed routed = route_stored(record.message, origin, now);
        if (routed.pending == Pending::kNone) continue;
        ++sql_batches_[ticket - first_sql_batch_].unfinished;
        pending_.set_owner(routed.pending, {PendingOwner::Kind::kSqlBatch, {}, ticket});
    }
    if (!records.ok()) {
        turn_.log.push_back({LogLine::Level::kWarning, "batch of publishes is malformed"});
    }
    sql_may_publish_ = false;
    report_sql_batches();
    settle(now);
}

// In order, whatever the order in which they became done: who sent them counts on it.
void Broker::State::report_sql_batches() {
    while (congested_.empty() && !sql_batches_.empty() && sql_batches_.front().unfinished == 0) {
        const SqlBatch& done = sql_batches_.front();
        auto& list = done.source == PublishSource::kCdc ? turn_.publishes_done : turn_.outbox_done;
        list.push_back(done.number);
        sql_batches_.pop_front();
        ++first_sql_batch_;
    }
}

// Routes a message whose properties are encoded already.
Routed Broker::State::route_stored(const MessageView& message, const Origin& from, Now now) {
    mqtt::Publish& publish = publish_;
    publish.topic = message.topic;
    publish.payload = message.payload;
    publish.qos = message.qos;
    publish.retain = message.retain;
    publish.packet_id = 0;
    if (!mqtt::decode_message_properties(message.properties, publish.properties).ok()) {
        publish.properties.clear();
    }
    if (message.expires_at != base::WallTime::max()) {
        if (message.expires_at <= now.wall) {
            ++counters_.dropped_expired;
            return {};
        }
        auto left = std::chrono::ceil<std::chrono::seconds>(message.expires_at - now.wall);
        publish.properties.message_expiry_interval =
            static_cast<uint32_t>(std::min<int64_t>(left.count(), UINT32_MAX));
    }
    Origin origin = from;
    origin.encoded_properties = message.properties;
    origin.received_at = message.received_at;
    return route(publish, origin, now);
}

}  // namespace pgmqtt::broker
