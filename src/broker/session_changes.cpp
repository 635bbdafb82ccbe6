#include "broker/session_changes.h"

#include <algorithm>

namespace pgmqtt::broker {

Durability SessionNetEffect::awaited(Durability of_state) const {
    Durability logged_state = std::min(of_state, Durability::kAsync);
    Durability most = Durability::kUnlogged;
    if (!ended_sessions.empty() || !sessions.empty() || !subscriptions.empty() ||
        !unsubscribed.empty() || !received.empty() || !released.empty())
        most = logged_state;
    for (const Message& row : messages) most = std::min(most, row.durability);
    for (const Delivery& row : deliveries) {
        if (row.durability == Durability::kUnlogged) continue;
        most = std::min(most, std::max(row.durability, logged_state));
    }
    return most;
}

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
            if (message_index_.try_emplace(record.message_id, messages_.size()).second)
                messages_.push_back({record.message_id, record.durability, 0, record.message});
            return;
        case StoreKind::kCopy:
            return add_copy(record);
        case StoreKind::kDelivery:
        case StoreKind::kDeliveryEnd:
            return add_delivery(record);
        case StoreKind::kReceived:
            return received_.write(packet, {session, record.packet_id, record.message_id});
        case StoreKind::kReleased:
            return received_.end(packet, {session, record.packet_id, record.message_id});
        case StoreKind::kMoved:
            return moved_.push_back({record.durability, record.message_id});
    }
}

// What is copied may itself be new, or a copy, here: then it need not be stored to be read again.
void SessionChanges::add_copy(const StoreRecord& record) {
    Message copy{record.message_id, record.durability, record.source_id, {}};
    auto source = message_index_.find(record.source_id);
    if (source != message_index_.end()) {
        copy.source_id = messages_[source->second].source_id;
        copy.message = messages_[source->second].message;
    }
    if (message_index_.try_emplace(copy.id, messages_.size()).second) messages_.push_back(copy);
}

// The stored message that this one is, or is a copy of. 0: it is new here.
uint64_t SessionChanges::stored_before(uint64_t message_id) const {
    auto found = message_index_.find(message_id);
    return found == message_index_.end() ? message_id : messages_[found->second].source_id;
}

void SessionChanges::add_delivery(const StoreRecord& record) {
    Key key{record.session_id, record.sequence};
    Delivery row{.session_id = record.session_id,
                 .sequence = record.sequence,
                 .message_id = record.message_id,
                 .durability = record.durability,
                 .delivery = record.delivery};
    const auto* known = deliveries_.find(key);
    row.was = known != nullptr ? known->row.was : stored_before(record.message_id);
    if (record.kind == StoreKind::kDelivery)
        deliveries_.write(key, row);
    else
        deliveries_.end(key, row);
}

bool SessionChanges::session_ended(uint64_t session_id) const {
    const auto* change = sessions_.find(session_id);
    return change != nullptr && change->ended;
}

// A message is written once, so a delivery that began with one that is new here cannot be stored.
bool SessionChanges::begun_here(const Delivery& delivery) const {
    return !repeated_ && delivery.was == 0;
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
    add_deliveries(net);
    add_messages(net);
    for (const auto& change : received_.changes) {
        if (session_ended(change.row.session_id)) continue;
        (change.ended ? net.released : net.received).push_back(change.row);
    }
    net.moved = moved_;
    return net;
}

void SessionChanges::add_deliveries(SessionNetEffect& net) const {
    for (const auto& change : deliveries_.changes) {
        if (!change.ended && session_ended(change.row.session_id)) continue;
        if (!change.ended)
            net.deliveries.push_back(change.row);
        else if (!change.written || !begun_here(change.row))
            net.ended_deliveries.push_back(change.row);
    }
}

void SessionChanges::add_messages(SessionNetEffect& net) const {
    if (messages_.empty()) return;
    std::vector<bool> needed(messages_.size());
    for (const Delivery& delivery : net.deliveries) {
        auto message = message_index_.find(delivery.message_id);
        if (message != message_index_.end()) needed[message->second] = true;
    }
    for (size_t i = 0; i < messages_.size(); ++i)
        if (needed[i]) net.messages.push_back(messages_[i]);
    auto by_id = [](const Message& a, const Message& b) { return a.id < b.id; };
    if (!std::is_sorted(net.messages.begin(), net.messages.end(), by_id))
        std::sort(net.messages.begin(), net.messages.end(), by_id);
}

bool SessionChanges::empty() const {
    return sessions_.changes.empty() && subscriptions_.changes.empty() && messages_.empty() &&
           deliveries_.changes.empty() && received_.changes.empty() && moved_.empty();
}

void SessionChanges::clear() {
    sessions_.clear();
    subscriptions_.clear();
    messages_.clear();
    message_index_.clear();
    deliveries_.clear();
    received_.clear();
    moved_.clear();
    repeated_ = false;
}

}  // namespace pgmqtt::broker
