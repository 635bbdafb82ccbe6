// What waits for a session. Of a session that outlives its connection only so much is near, in
// memory, as the client can take soon; the rest is far: an entry here, the message in the store.
// While the client is away all of it is far.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

// Whether its deliveries of this QoS are in the store.
bool Broker::State::is_stored(const Session& session, Qos qos) {
    return session.persistent && qos != Qos::k0;
}

size_t Broker::State::near_limit(const Session& session) const {
    constexpr size_t kLeast = 16;
    constexpr size_t kMost = 1024;
    const Connection* c = session.connection;
    return c == nullptr ? 0 : std::clamp(2 * window_limit(*c), kLeast, kMost);
}

// Of what is stored. Nothing passes what is far.
bool Broker::State::may_be_near(const Session& session, size_t bytes) const {
    return online(session) != nullptr && session.far.empty() &&
           session.queue.size() < near_limit(session) &&
           session.queued_bytes + bytes <= config_.client_buffer && pressure() == Pressure::kNone;
}

void Broker::State::push(Session& session, Delivery delivery) {
    bool near = !is_stored(session, delivery.qos) ||
                (may_be_near(session, delivery.bytes) && !delivery.is_missing());
    if (near) return push_queue(session, std::move(delivery));
    push_far(session, delivery);
}

void Broker::State::push_queue(Session& session, Delivery delivery) {
    if (delivery.qos == Qos::k0) ++session.queued_qos0;
    if (delivery.is_missing()) session.incomplete = true;
    uint32_t bytes = delivery.bytes;
    base::MonoTime at = append(session, std::move(delivery));
    count_queued(session, bytes, at);
}

// To what is near; returns when it expires.
base::MonoTime Broker::State::append(Session& session, Delivery delivery) {
    uint64_t before = session.queue.empty() ? 0 : session.queue.back().order;
    delivery.order = delivery.sequence != 0 ? delivery.sequence : before;
    base::MonoTime at = deadline(delivery);
    session.queue.push_back(std::move(delivery), at);
    return at;
}

// Of what is near and has a sequence; null: none.
Delivery* Broker::State::find_near(Session& session, uint64_t sequence) {
    Delivery* found = session.queue.find_first(
        [sequence](const Delivery& other) { return other.order < sequence; });
    return found != nullptr && found->sequence == sequence ? found : nullptr;
}

void Broker::State::push_far(Session& session, const Delivery& delivery) {
    StoredEntry entry = far_entry(session, delivery);
    base::MonoTime at = deadline(entry);
    session.far.push_back(entry, at);
    count_queued(session, entry.bytes, at);
}

// Counts as far, and may have identifiers in the map of the session.
StoredEntry Broker::State::far_entry(Session& session, const Delivery& delivery) {
    session.far_bytes += delivery.bytes;
    ++far_entries_;
    if (!delivery.identifiers.empty()) {
        session.far_identifiers[delivery.sequence] = delivery.identifiers;
    }
    StoredEntry entry;
    entry.message_id = delivery.stored.id;
    entry.sequence = delivery.sequence;
    entry.bytes = delivery.bytes;
    entry.expires = far_clock_.put(delivery.expires);
    // The four billionth group gets nothing of another member.
    entry.share = delivery.share > UINT32_MAX ? 0 : static_cast<uint32_t>(delivery.share);
    entry.qos = delivery.qos;
    entry.published_qos = delivery.published_qos;
    entry.durability = delivery.stored.durability;
    entry.retain = delivery.retain;
    entry.published_retain = delivery.published_retain;
    entry.may_be_sent = delivery.may_be_sent;
    entry.sent_is_stored = delivery.sent_is_stored;
    entry.has_identifiers = !delivery.identifiers.empty();
    return entry;
}

Delivery Broker::State::delivery_of(const Session& session, const StoredEntry& entry) const {
    Delivery delivery{.stored = {entry.message_id, entry.durability},
                      .qos = entry.qos,
                      .retain = entry.retain,
                      .may_be_sent = entry.may_be_sent,
                      .sent_is_stored = entry.sent_is_stored,
                      .published_qos = entry.published_qos,
                      .published_retain = entry.published_retain,
                      .identifiers = {},
                      .sequence = entry.sequence,
                      .share = entry.share,
                      .bytes = entry.bytes,
                      .expires = far_clock_.get(entry.expires)};
    if (entry.has_identifiers) {
        auto found = session.far_identifiers.find(entry.sequence);
        if (found != session.far_identifiers.end()) delivery.identifiers = found->second;
    }
    return delivery;
}

// Still counts as queued.
Delivery Broker::State::take_far(Session& session) {
    StoredEntry entry = session.far.take_front();
    Delivery delivery = delivery_of(session, entry);
    forget_far(session, entry);
    return delivery;
}

// It is not in the queue any more.
void Broker::State::forget_far(Session& session, const StoredEntry& entry) {
    if (entry.has_identifiers) session.far_identifiers.erase(entry.sequence);
    session.far_bytes -= entry.bytes;
    --far_entries_;
}

// `at`: when it expires.
void Broker::State::count_queued(Session& session, uint32_t bytes, base::MonoTime at) {
    session.queued_bytes += bytes;
    ++counters_.queued;
    counters_.queued_bytes += bytes;
    if (at != base::kNever) arm(session);
    note_queued(session);
}

void Broker::State::count_taken(Session& session, uint32_t bytes) {
    session.queued_bytes -= bytes;
    --counters_.queued;
    counters_.queued_bytes -= bytes;
}

// The first.
Delivery Broker::State::take_queued(Session& session) {
    Delivery first = session.queue.empty() ? take_far(session) : session.queue.take_front();
    if (first.qos == Qos::k0) --session.queued_qos0;
    count_taken(session, first.bytes);
    return first;
}

void Broker::State::drop_queued(Session& session) {
    end_delivery(session, take_queued(session));
}

// The client is gone: QoS 0 with it, and of the rest what memory must hold.
void Broker::State::put_away(Session& session) {
    std::vector<StoredEntry> entries;
    while (!session.queue.empty()) {
        Delivery delivery = session.queue.take_front();
        if (is_stored(session, delivery.qos)) {
            entries.push_back(far_entry(session, delivery));
            continue;
        }
        if (delivery.qos == Qos::k0) --session.queued_qos0;
        count_taken(session, delivery.bytes);
        end_delivery(session, delivery);
    }
    session.queue.release();
    session.far.prepend(std::move(entries),
                        [this](const StoredEntry& entry) { return deadline(entry); });
    for (size_t i = 0; i < session.window.publish_count(); ++i) {
        Delivery& delivery = session.window.publish(i);
        delivery.message.reset();
        delivery.asked = false;
    }
    session.incomplete = session.window.publish_count() > 0;
}

}  // namespace pgmqtt::broker
