// What the workers did, and who waits for it.
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::store_done(uint64_t batch, Now now) {
    begin_input(now);
    finished_.clear();
    pending_.store_done(batch, finished_);
    for (const FinishedPublish& finished : finished_) finish(finished);
    go_on_stored();
    relieve_publishers();
    report_sql_batches();
    settle(now);
}

void Broker::State::sink_done(const CompletionRecord& completion, Now now) {
    begin_input(now);
    finished_.clear();
    CompletionRecord said = completion;
    // A client would close for a code that is not one [MQTT-3.4.2-1].
    if (!mqtt::is_allowed_reason(mqtt::PacketType::kPuback, said.reason, mqtt::Sender::kServer)) {
        said.reason = ReasonCode::kUnspecifiedError;
    }
    pending_.sink_done(said, finished_);
    for (const FinishedPublish& finished : finished_) finish(finished);
    relieve_publishers();
    report_sql_batches();
    settle(now);
}

void Broker::State::finish(const FinishedPublish& finished) {
    switch (finished.owner.kind) {
        case PendingOwner::Kind::kNobody:
            return;
        case PendingOwner::Kind::kSqlBatch:
            --sql_batches_[finished.owner.number - first_sql_batch_].unfinished;
            return;
        case PendingOwner::Kind::kPubrec:
            return finish_pubrec(finished);
        case PendingOwner::Kind::kPuback:
            break;
    }
    // A publisher that left does not hear of it; its message is done all the same.
    Connection* c = find(finished.owner.connection);
    if (c == nullptr || c->phase != Phase::kConnected) return;
    OwedAck& puback = c->owed[finished.owner.number - c->first_owed];
    puback.ready = true;
    puback.reason = finished.reason;
    puback.reason_string = finished.reason_string;
    flush_owed(*c);
}

// Below half, so that they do not stop and go with every message.
void Broker::State::relieve_publishers() {
    if (paused_publishers_.empty() || pending_.bytes() > config_.max_pending_bytes / 2) return;
    for (ConnectionId id : std::exchange(paused_publishers_, {})) {
        if (Connection* c = find(id)) resume(*c, kPausedForPending);
    }
}

}  // namespace pgmqtt::broker
