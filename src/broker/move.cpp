// The store cleans its log: what is needed of its old part moves to its end. First the deliveries
// that refer to that part are looked up, so many in a turn, then they move in the order of their
// messages, so that those of one message share its copy. Deliveries that end meanwhile are passed
// over; they keep their places in the queues, and their sequences.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

constexpr size_t kLooksInTurn = 50000;  // of entries
constexpr size_t kMovesInTurn = 4096;
constexpr size_t kBytesInTurn = 1 << 20;  // of messages

}  // namespace

void Broker::State::move(const MoveRecord& record, Now now) {
    begin_input(now);
    Moving& moving = moving_in(record.durability);
    // Said again by a store worker that came back.
    if (moving.active && moving.up_to == record.up_to) return;
    for (const auto& chunk : moving.chunks) move_refs_ -= chunk.size();
    move_refs_ -= moving.late.size();
    moving = {};
    moving.active = true;
    moving.up_to = record.up_to;
    moving.durability = record.durability;
    moving.sessions.reserve(sessions_by_id_.size());
    for (const auto& [id, session] : sessions_by_id_) moving.sessions.push_back(id);
    move_some();
}

bool Broker::State::must_move(const Moving& moving, const StoredAs& stored) const {
    bool unlogged = stored.durability == Durability::kUnlogged;
    return stored.id != 0 && stored.id <= moving.up_to &&
           unlogged == (moving.durability == Durability::kUnlogged);
}

// At once while there is something to look through; then with the answers of the store.
base::MonoTime Broker::State::next_move() const {
    for (const Moving& moving : moving_) {
        if (moving.active && moving.batch <= pending_.stored_batch()) return base::MonoTime{};
    }
    return base::kNever;
}

// Not before the end of an input: a delivery that is handed over is in no session for a while.
void Broker::State::move_some() {
    for (Moving& moving : moving_) {
        if (moving.active && moving.batch <= pending_.stored_batch()) move_some(moving);
    }
}

void Broker::State::move_some(Moving& moving) {
    if (!look_through(moving)) return;
    size_t count = 0;
    size_t bytes = 0;
    moving.source_id = 0;  // one batch, one copy
    MoveRef ref;
    while (count < kMovesInTurn && bytes < kBytesInTurn) {
        if (!next_ref(moving, ref)) {
            moving.active = false;
            return put({.kind = StoreKind::kMoved,
                        .message_id = moving.up_to,
                        .durability = moving.durability});
        }
        uint64_t copied = moving.copy_id;
        uint32_t size = move_ref(moving, ref);
        if (moving.copy_id != copied) bytes += size;
        ++count;
    }
    moving.batch = pending_.store_batch();
}

// True when all is looked through.
bool Broker::State::look_through(Moving& moving) {
    size_t budget = kLooksInTurn;
    std::vector<MoveRef> found;
    while (!moving.sessions.empty() && budget > 0) {
        Session* session = find_session(moving.sessions.back());
        // From the back: what comes near meanwhile is found there.
        if (session != nullptr && !look_through_far(moving, *session, budget, found)) break;
        if (session != nullptr) {
            look_through_rest(moving, *session, found);
            size_t looks = session->queue.size() + session->window.size() + 1;
            budget -= std::min(budget, looks);
        }
        moving.sessions.pop_back();
        moving.below = UINT64_MAX;
    }
    if (!found.empty()) {
        std::sort(found.begin(), found.end(),
                  [](const MoveRef& a, const MoveRef& b) { return a.message_id > b.message_id; });
        move_refs_ += found.size();
        moving.chunks.push_back(std::move(found));
    }
    return moving.sessions.empty();
}

bool Broker::State::look_through_far(Moving& moving, Session& session, size_t& budget,
                                     std::vector<MoveRef>& found) {
    uint64_t below = moving.below;
    auto is_below = [below](const StoredEntry& entry) { return entry.sequence < below; };
    return session.far.for_each_below(is_below, [&](const StoredEntry& entry) {
        if (budget == 0) return false;
        --budget;
        moving.below = entry.sequence;
        if (must_move(moving, {entry.message_id, entry.durability})) {
            found.push_back({entry.message_id, session.id, entry.sequence});
        }
        return true;
    });
}

void Broker::State::look_through_rest(Moving& moving, Session& session,
                                      std::vector<MoveRef>& found) {
    auto look = [&](const StoredAs& stored, uint64_t sequence) {
        if (must_move(moving, stored)) found.push_back({stored.id, session.id, sequence});
    };
    InflightWindow& window = session.window;
    session.queue.for_each(
        [&](const Delivery& delivery) { look(delivery.stored, delivery.sequence); });
    for (size_t i = 0; i < window.publish_count(); ++i) {
        look(window.publish(i).stored, window.publish(i).sequence);
    }
    for (size_t i = 0; i < window.release_count(); ++i) {
        look(window.release(i).stored, window.release(i).sequence);
    }
    if (moving.durability == Durability::kUnlogged) return;
    for (auto& [packet_id, received] : session.received) {
        bool needed = received.stored_id != 0 && !received.releasing;
        if (!needed || received.stored_id > moving.up_to) continue;
        received.stored_id = ++last_id_;
        put_received(session, packet_id, received.stored_id, StoreKind::kReceived);
        moving.batch = pending_.store_batch();
    }
}

// The lowest message first.
bool Broker::State::next_ref(Moving& moving, MoveRef& ref) {
    auto before = [](const std::vector<MoveRef>& a, const std::vector<MoveRef>& b) {
        return a.back().message_id < b.back().message_id;
    };
    auto take = [&](std::vector<MoveRef>& refs) {
        ref = refs.back();
        refs.pop_back();
        --move_refs_;
    };
    auto& chunks = moving.chunks;
    if (!chunks.empty()) {
        auto lowest = std::min_element(chunks.begin(), chunks.end(), before);
        take(*lowest);
        if (lowest->empty()) chunks.erase(lowest);
        return true;
    }
    if (moving.late.empty()) return false;
    take(moving.late);
    return true;
}

// The bytes of the message; 0: nobody needs it there.
uint32_t Broker::State::move_ref(Moving& moving, const MoveRef& ref) {
    Session* session = find_session(ref.session);
    if (session == nullptr) return 0;
    auto move_delivery = [&](Delivery& delivery) {
        if (delivery.stored.id != ref.message_id) return uint32_t{0};
        delivery.stored = copy_of(moving, delivery.stored);
        put_delivery(*session, delivery, DeliveryState::kQueued);
        return delivery.bytes;
    };
    StoredEntry* entry = session->far.find_first(
        [&](const StoredEntry& other) { return other.sequence < ref.sequence; });
    if (entry != nullptr && entry->sequence == ref.sequence) {
        Delivery delivery = delivery_of(*session, *entry);
        uint32_t bytes = move_delivery(delivery);
        entry->message_id = delivery.stored.id;
        return bytes;
    }
    if (Delivery* delivery = find_near(*session, ref.sequence)) return move_delivery(*delivery);
    InflightWindow& window = session->window;
    if (size_t i = window.find(ref.sequence); i != InflightWindow::kNone)
        return move_delivery(window.publish(i));
    for (size_t i = 0; i < window.release_count(); ++i) {
        Release& release = window.release(i);
        if (release.sequence != ref.sequence || release.stored.id != ref.message_id) continue;
        release.stored = copy_of(moving, release.stored);
        put_release(*session, release);
        return release.bytes;
    }
    return 0;
}

StoredAs Broker::State::copy_of(Moving& moving, const StoredAs& stored) {
    if (moving.source_id != stored.id) {
        moving.source_id = stored.id;
        moving.copy_id = ++last_id_;
        put({.kind = StoreKind::kCopy,
             .message_id = moving.copy_id,
             .source_id = stored.id,
             .durability = stored.durability});
    }
    return {moving.copy_id, stored.durability};
}

// A delivery was handed over, and its message with it.
void Broker::State::note_reference(const StoredAs& stored, const Session& session,
                                   uint64_t sequence) {
    Moving& moving = moving_in(stored.durability);
    if (!moving.active || !must_move(moving, stored)) return;
    moving.late.push_back({stored.id, session.id, sequence});
    ++move_refs_;
}

}  // namespace pgmqtt::broker
