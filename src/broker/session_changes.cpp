#include "broker/session_changes.h"

namespace pgmqtt::broker {

template <class Row, class RowKey, class Hash>
void SessionChanges::Table<Row, RowKey, Hash>::write(const RowKey& key, const Row& row) {
    auto [position, fresh] = index.try_emplace(key, changes.size());
    if (fresh)
        changes.push_back({row, true, false});
    else
        changes[position->second] = {row, true, false};
}

template <class Row, class RowKey, class Hash>
void SessionChanges::Table<Row, RowKey, Hash>::end(const RowKey& key, const Row& row) {
    auto [position, fresh] = index.try_emplace(key, changes.size());
    if (fresh)
        changes.push_back({row, false, true});
    else
        changes[position->second].ended = true;
}

template <class Row, class RowKey, class Hash>
auto SessionChanges::Table<Row, RowKey, Hash>::find(const RowKey& key) const -> const Change<Row>* {
    auto position = index.find(key);
    return position == index.end() ? nullptr : &changes[position->second];
}

template <class Row, class RowKey, class Hash>
void SessionChanges::Table<Row, RowKey, Hash>::clear() {
    changes.clear();
    index.clear();
}

void SessionChanges::add(const StoreRecord& record) {
    uint64_t session = record.session_id;
    Key delivery{session, record.sequence};
    Key packet{session, record.packet_id};
    FilterKey filter{session, record.subscription.filter};
    switch (record.kind) {
        case StoreKind::kRetain:
        case StoreKind::kUnretain:
            return;
        case StoreKind::kSession:
            return sessions_.write(session, {session, record.session});
        case StoreKind::kSessionEnd:
            return sessions_.end(session, {session, {}});
        case StoreKind::kSubscribe:
            return subscriptions_.write(filter, {session, record.subscription});
        case StoreKind::kUnsubscribe:
            return subscriptions_.end(filter, {session, record.subscription});
        case StoreKind::kMessage:
            return messages_.write(record.message_id, {record.message_id, record.message});
        case StoreKind::kMessageEnd:
            return messages_.end(record.message_id, {record.message_id, {}});
        case StoreKind::kDelivery:
            return deliveries_.write(
                delivery, {session, record.sequence, record.message_id, record.delivery});
        case StoreKind::kDeliveryEnd:
            return deliveries_.end(delivery, {session, record.sequence, 0, {}});
        case StoreKind::kReceived:
            return received_.write(packet, {session, record.packet_id});
        case StoreKind::kReleased:
            return received_.end(packet, {session, record.packet_id});
    }
}

bool SessionChanges::session_ended(uint64_t session_id) const {
    const auto* change = sessions_.find(session_id);
    return change != nullptr && change->ended;
}

// A message is written once, so the row of one that is written here cannot be there yet; nor can
// that of any delivery of it.
bool SessionChanges::begun_here(uint64_t message_id) const {
    if (repeated_) return false;
    const auto* change = messages_.find(message_id);
    return change != nullptr && change->written;
}

SessionNetEffect SessionChanges::net_effect() const {
    SessionNetEffect net;
    for (const auto& change : sessions_.changes) {
        if (change.ended)
            net.ended_sessions.push_back(change.row.id);
        else
            net.sessions.push_back(change.row);
    }
    for (const auto& change : subscriptions_.changes) {
        if (session_ended(change.row.session_id)) continue;
        (change.ended ? net.unsubscribed : net.subscriptions).push_back(change.row);
    }
    for (const auto& change : messages_.changes) {
        if (!change.ended)
            net.messages.push_back(change.row);
        else if (!begun_here(change.row.id))
            net.ended_messages.push_back(change.row.id);
    }
    for (const auto& change : deliveries_.changes) {
        if (session_ended(change.row.session_id)) continue;
        if (!change.ended)
            net.deliveries.push_back(change.row);
        else if (!change.written || !begun_here(change.row.message_id))
            net.ended_deliveries.push_back(change.row);
    }
    for (const auto& change : received_.changes) {
        if (session_ended(change.row.session_id)) continue;
        (change.ended ? net.released : net.received).push_back(change.row);
    }
    return net;
}

bool SessionChanges::empty() const {
    return sessions_.changes.empty() && subscriptions_.changes.empty() &&
           messages_.changes.empty() && deliveries_.changes.empty() && received_.changes.empty();
}

void SessionChanges::clear() {
    sessions_.clear();
    subscriptions_.clear();
    messages_.clear();
    deliveries_.clear();
    received_.clear();
    repeated_ = false;
}

}  // namespace pgmqtt::broker
