// Messages that a client can take soon come back from the store: in order, each once for all who
// wait for it, and not more than memory has room for.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

// Of one client, when memory is scarce.
constexpr size_t kScarceAhead = 16 << 10;

}  // namespace

// Asks for what is missing of the first that wait. When half of it has come, for more. Also while
// CONNACK waits for the store, so that what is sent again follows it without a pause.
void Broker::State::look_ahead(Session& session) {
    const Connection* c = session.connection;
    bool is_there = c != nullptr && (c->phase == Phase::kConnected || c->phase == Phase::kStoring);
    if (!is_there || c->doomed || session.waits_to_fetch) return;
    bool refilled = refill(session);
    size_t most = near_limit(session);
    if (!refilled && (!session.incomplete || session.asked > most / 2)) return;
    size_t most_bytes = pressure() == Pressure::kNone
                            ? config_.client_buffer
                            : std::min(config_.client_buffer, kScarceAhead);
    size_t count = 0;
    size_t bytes = 0;
    // False: here it ends.
    auto want = [&](Delivery& delivery) {
        bytes += delivery.bytes;
        if (count == most || (count > 0 && bytes > most_bytes)) return false;
        ++count;
        return !delivery.is_missing() || delivery.asked || ask(session, delivery);
    };
    session.incomplete = true;
    InflightWindow& window = session.window;
    for (size_t i = window.sent_count(); i < window.publish_count(); ++i) {
        if (!want(window.publish(i))) return;
    }
    for (size_t i = 0; i < session.queue.size(); ++i) {
        if (!want(session.queue[i])) return;
    }
    session.incomplete = false;
}

// From far to near, when half of what is near has gone.
bool Broker::State::refill(Session& session) {
    if (session.far.empty()) return false;
    size_t most = near_limit(session);
    size_t most_bytes = config_.client_buffer;
    auto near_bytes = [&] { return session.queued_bytes - session.far_bytes; };
    if (session.queue.size() > most / 2) return false;
    if (!session.queue.empty() && near_bytes() > most_bytes / 2) return false;
    while (!session.far.empty() && session.queue.size() < most &&
           (session.queue.empty() || near_bytes() + session.far.front().bytes <= most_bytes)) {
        Delivery delivery = take_far(session);
        bool must_stay = delivery.may_be_sent && delivery.qos == Qos::k2;  // [MQTT-4.3.3-7]
        if (delivery.expired(now_.mono) && !must_stay) {
            count_taken(session, delivery.bytes);
            count_dropped(session, counters_.dropped_expired);
            end_delivery(session, delivery);
            continue;
        }
        append(session, std::move(delivery));
    }
    return true;
}

// False when others have to get theirs first.
bool Broker::State::ask(Session& session, Delivery& delivery) {
    auto known = fetches_.find(delivery.stored.id);
    if (known == fetches_.end()) {
        uint64_t most = pressure() == Pressure::kFull ? 0 : config_.max_memory / 8;
        if (fetching_bytes_ > 0 && fetching_bytes_ + delivery.bytes > most) {
            session.waits_to_fetch = true;
            to_fetch_.push_back(session.id);
            return false;
        }
        known = fetches_.try_emplace(delivery.stored.id).first;
        // Also a message of no bytes is one.
        known->second.bytes = std::max<uint32_t>(delivery.bytes, 1);
        fetching_bytes_ += known->second.bytes;
        turn_.fetch.add(FetchRecord{delivery.stored.id, delivery.stored.durability});
    }
    known->second.waiters.push_back({session.id, delivery.sequence});
    delivery.asked = true;
    ++session.asked;
    return true;
}

void Broker::State::fetched(BatchReader& records, Now now) {
    begin_input(now);
    std::vector<uint64_t> sessions;
    FetchedRecord record;
    while (records.next(record)) {
        auto found = fetches_.find(record.message_id);
        if (found == fetches_.end()) continue;
        Fetch fetch = std::move(found->second);
        fetches_.erase(found);
        fetching_bytes_ -= fetch.bytes;
        MessagePtr message;
        if (record.found) {
            message = make_message(record.message, now);
            message->charge(message_bytes_);
        }
        for (const Fetch::Waiter& waiter : fetch.waiters) {
            answer_waiter(waiter, record.message_id, message);
            if (sessions.empty() || sessions.back() != waiter.session) {
                sessions.push_back(waiter.session);
            }
        }
    }
    if (!records.ok()) {
        turn_.log.push_back({LogLine::Level::kWarning, "batch of fetched messages is malformed"});
    }
    std::sort(sessions.begin(), sessions.end());
    sessions.erase(std::unique(sessions.begin(), sessions.end()), sessions.end());
    for (uint64_t id : sessions) {
        if (Session* session = find_session(id)) pump(*session);
    }
    fetch_more();
    settle(now);
}

void Broker::State::answer_waiter(const Fetch::Waiter& waiter, uint64_t message_id,
                                  const MessagePtr& message) {
    Session* session = find_session(waiter.session);
    if (session == nullptr) return;
    --session->asked;
    Delivery* delivery = find_asked(*session, waiter.sequence);
    if (delivery == nullptr) return;  // ended, or has gone back into the store
    delivery->asked = false;
    if (message) {
        delivery->message = message;
        delivery->expires = message->expires;
    } else if (delivery->stored.id == message_id) {
        drop_missing(*session, waiter.sequence);
    } else {
        session->incomplete = true;  // it has moved meanwhile
    }
}

// For each message of a drain: both are sorted.
Delivery* Broker::State::find_asked(Session& session, uint64_t sequence) {
    size_t i = session.window.find(sequence);
    Delivery* found =
        i != InflightWindow::kNone ? &session.window.publish(i) : find_near(session, sequence);
    return found != nullptr && found->asked ? found : nullptr;
}

// Somebody removed it by hand: there is nothing to deliver.
void Broker::State::drop_missing(Session& session, uint64_t sequence) {
    count_dropped(session, counters_.dropped_missing);
    if (!missing_told_) {
        missing_told_ = true;
        turn_.log.push_back({LogLine::Level::kWarning,
                             "a message of a queue is not in the store any more: its deliveries "
                             "are dropped, see dropped_missing in pgmqtt.stat_broker"});
    }
    InflightWindow& window = session.window;
    if (size_t i = window.find(sequence); i != InflightWindow::kNone) {
        --counters_.inflight;
        return end_delivery(session, window.take_unsent(i));
    }
    size_t i = session.queue.find_index(
        [sequence](const Delivery& other) { return other.order < sequence; });
    Delivery delivery = session.queue.take(i);
    count_taken(session, delivery.bytes);
    end_delivery(session, delivery);
}

void Broker::State::fetch_more() {
    for (size_t count = to_fetch_.size(); count > 0; --count) {
        uint64_t most = pressure() == Pressure::kFull ? 0 : config_.max_memory / 8;
        if (fetching_bytes_ > most) return;
        Session* session = find_session(to_fetch_.front());
        to_fetch_.pop_front();
        if (session == nullptr) continue;
        session->waits_to_fetch = false;
        look_ahead(*session);
    }
}

// The store worker came back, and knows nothing of what it was asked for.
void Broker::State::fetch_again() {
    turn_.fetch.clear();
    std::vector<Session*> sessions;
    for (auto& [id, fetch] : fetches_) {
        for (const Fetch::Waiter& waiter : fetch.waiters) {
            Session* session = find_session(waiter.session);
            if (session == nullptr) continue;
            --session->asked;
            if (Delivery* delivery = find_asked(*session, waiter.sequence)) delivery->asked = false;
            session->incomplete = true;
            sessions.push_back(session);
        }
    }
    fetches_.clear();
    fetching_bytes_ = 0;
    for (Session* session : sessions) look_ahead(*session);
    fetch_more();
}

}  // namespace pgmqtt::broker
