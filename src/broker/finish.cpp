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
    move_some();
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

// Deliveries ended; publishes may have waited for nothing else.
void Broker::State::finish_delivered() {
    std::vector<FinishedPublish> finished;
    for (const Pending::Ticket& ticket : std::exchange(delivered_, {})) {
        pending_.delivery_done(ticket, finished);
    }
    for (const FinishedPublish& publish : finished) finish(publish);
    if (!finished.empty()) report_sql_batches();
}

base::MonoTime Broker::State::next_overdue() const {
    base::MonoTime sent = pending_.first_unreported();
    if (config_.store_patience_ms == 0 || sent == base::kNever) return base::kNever;
    return sent + std::chrono::milliseconds(config_.store_patience_ms);
}

// What waits for the store longer than a publisher should: 5.0 knows how to say so. It may try
// again; the store may come back and keep what it was told before. 3.x can but wait.
void Broker::State::refuse_overdue() {
    if (next_overdue() > now_.mono) return;
    uint64_t told = pending_.overdue_batch();
    overdue_.clear();
    pending_.overdue(now_.mono - std::chrono::milliseconds(config_.store_patience_ms), overdue_);
    for (Pending::PublishId id : overdue_) {
        PendingOwner owner = pending_.owner(id);
        if (refuse_overdue(owner)) pending_.set_owner(id, {});
    }
    // QoS 2 of which only the identifier is to be stored.
    size_t i = store_waits_.find_first([&](const StoreWait& wait) { return wait.batch <= told; });
    for (; i < store_waits_.size(); ++i) {
        const StoreWait& wait = store_waits_[i];
        if (wait.batch > pending_.overdue_batch()) break;
        if (wait.kind != StoreWait::Kind::kPubrec) continue;
        refuse_overdue({.kind = PendingOwner::Kind::kPubrec,
                        .number = wait.session,
                        .packet_id = wait.packet_id});
    }
}

bool Broker::State::refuse_overdue(const PendingOwner& owner) {
    const Connection* c = nullptr;
    if (owner.kind == PendingOwner::Kind::kPuback) c = find(owner.connection);
    if (owner.kind == PendingOwner::Kind::kPubrec) {
        const Session* session = find_session(owner.number);
        if (session != nullptr) c = online(*session);
    }
    if (c == nullptr || c->version != Version::k5 || c->phase != Phase::kConnected) return false;
    ++counters_.publishes_overdue;
    const std::string reason = "the database does not store it in time";
    if (owner.kind == PendingOwner::Kind::kPuback) {
        finish({owner, ReasonCode::kQuotaExceeded, reason});
    } else {
        Session* session = find_session(owner.number);
        pubrec_ready(*session, owner.packet_id, ReasonCode::kQuotaExceeded, reason);
    }
    return true;
}

// Below half, so that they do not stop and go with every message.
void Broker::State::relieve_publishers() {
    if (paused_publishers_.empty() || pending_.bytes() > config_.max_pending_bytes / 2) return;
    for (ConnectionId id : std::exchange(paused_publishers_, {})) {
        if (Connection* c = find(id)) resume(*c, kPausedForPending);
    }
}

}  // namespace pgmqtt::broker
