// What waited for a client goes on as far as its window and its outbox allow: first the retained
// messages of new subscriptions, then the queue. So 10,000 retained messages take no more of the
// outbox than any other flow, and nothing overtakes them.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::pump(Session& session) {
    if (online(session) == nullptr) return;
    flush_window(session);
    bool took = false;
    while (pump_retained(session) || pump_queue(session)) took = true;
    look_ahead(session);
    if (took) return note_taken(session);
    relieve_congestion(session);
}

// Whether one more may be sent, or for QoS 1 and 2 enter the window.
bool Broker::State::can_start(Session& session, Qos qos) {
    const Connection& c = *session.connection;
    if (c.doomed || c.outbox.size() > output_limit()) return false;
    return qos == Qos::k0 || session.window.has_room(window_limit(c));
}

// True when there was something to do.
bool Broker::State::pump_retained(Session& session) {
    if (session.retained.empty()) return false;
    RetainedRun& run = session.retained.front();
    if (!can_start(session, Qos::k0)) return false;
    if (!run.next && !find_retained(*session.connection, run)) {
        if (!run.cursor->done()) return false;
        session.retained.pop_front();
        return true;
    }
    const MessagePtr message = run.next;
    // The subscription got what was retained later as it was published; an older message after a
    // newer one would be wrong, and so would one that was cleared.
    bool is_newer = message->superseded || message->retained_number > run.since;
    if ((is_newer && !run.is_sys) || message->expired(now_.mono)) {
        run.next.reset();
        return true;
    }
    Qos qos = std::min(message->qos, run.qos);
    if (!can_start(session, qos)) return false;
    Delivery delivery{.message = message,
                      .qos = qos,
                      .retain = true,
                      .identifiers = {},
                      .bytes = static_cast<uint32_t>(message->bytes()),
                      .expires = message->expires};
    if (run.identifier != 0) delivery.identifiers.push_back(run.identifier);
    run.next.reset();
    if (session.persistent && qos != Qos::k0) save_delivery(session, delivery, nullptr);
    start(session, std::move(delivery));
    return true;
}

// False when the search is over, or goes on in the next turn.
bool Broker::State::find_retained(Connection& c, RetainedRun& run) {
    if (!run.cursor) run.cursor.emplace(run.is_sys ? sys_retained_ : retained_, run.filter);
    size_t share = std::min(search_budget_, kSearchShare);
    size_t left = share;
    run.next = run.cursor->next(left);
    search_budget_ -= share - left;
    if (run.next) return true;
    if (!run.cursor->done()) pump_later(c);
    return false;
}

bool Broker::State::pump_queue(Session& session) {
    if (!session.retained.empty() || session.queue.empty()) return false;
    const Delivery& first = session.queue.front();
    bool must_stay = first.may_be_sent && first.qos == Qos::k2;  // [MQTT-4.3.3-7]
    if (first.expired(now_.mono) && !must_stay) {
        count_dropped(session, counters_.dropped_expired);
        drop_queued(session);
        return true;
    }
    if (first.is_missing() || !can_start(session, first.qos)) return false;
    if (first.sequence != 0 && session.window.in_use(first.sequence)) return false;
    start(session, take_queued(session));
    return true;
}

void Broker::State::start(Session& session, Delivery delivery) {
    if (delivery.qos == Qos::k0) {
        send_kept(*session.connection, delivery, 0);
        return end_delivery(session, delivery);
    }
    session.window.push(std::move(delivery));
    ++counters_.inflight;
    flush_window(session);
}

// What is in the window and was not sent on this connection: the new, and after a reconnect the
// old, in their order [MQTT-4.6.0-1] and as far as the client's Receive Maximum goes
// [MQTT-3.3.4-9].
void Broker::State::flush_window(Session& session) {
    Connection& c = *session.connection;
    while (Delivery* next = session.window.next_unsent()) {
        if (next->batch > pending_.stored_batch()) return;
        if (c.doomed || c.outbox.size() > output_limit() ||
            session.window.quota_used() >= window_limit(c)) {
            return;
        }
        bool expired = next->expired(now_.mono) && !next->may_be_sent;
        if (next->is_missing() && !expired) return;
        if (expired) count_dropped(session, counters_.dropped_expired);
        uint16_t packet_id = InflightWindow::identifier(next->sequence);
        // Too large is as good as delivered, and keeps no place [MQTT-3.1.2-25].
        if (expired || !send_kept(c, *next, packet_id)) {
            end_delivery(session, session.window.take_unsent());
            --counters_.inflight;
            continue;
        }
        session.window.mark_sent();
        next->may_be_sent = true;
        // What is stored comes from there if it has to be sent again. Else there is no reconnect;
        // at most another member of its group.
        if (next->stored.id != 0 || next->share == 0) next->message.reset();
        if (session.persistent && next->qos == Qos::k2 && next->expires != base::kNever &&
            !next->sent_is_stored) {
            next->sent_is_stored = true;  // must not expire any more, also in the store
            put_delivery(session, *next, DeliveryState::kQueued);
        }
    }
}

// False when it is too large for the client [MQTT-3.1.2-24].
bool Broker::State::send_kept(Connection& c, const Delivery& delivery, uint16_t packet_id) {
    const MessagePtr& kept = delivery.message;
    const Message& message = *kept;
    mqtt::Publish& publish = outgoing_;
    publish.topic = message.topic;
    publish.payload = message.payload();
    publish.qos = delivery.qos;
    publish.retain = delivery.retain;
    publish.dup = delivery.may_be_sent;  // [MQTT-3.3.1-1]
    publish.packet_id = packet_id;
    publish.properties.clear();
    if (c.version == Version::k5) {
        // They were valid when they came; if not, they are empty now.
        if (!mqtt::decode_message_properties(message.properties, publish.properties).ok()) {
            publish.properties.clear();
        }
        if (message.expires != base::kNever) {  // less what it waited here [MQTT-3.3.2-6]
            auto left = std::chrono::ceil<std::chrono::seconds>(message.expires - now_.mono);
            publish.properties.message_expiry_interval =
                static_cast<uint32_t>(std::max<int64_t>(left.count(), 0));
        }
        publish.properties.subscription_identifiers = delivery.identifiers;
    }
    OutgoingAliases::Choice alias;
    if (c.outgoing_aliases.allowed() && OutgoingAliases::worth_it(message.topic)) {
        alias = c.outgoing_aliases.choose(message.topic, base::hash(message.topic, seed_));
    }
    if (alias.alias != 0) publish.properties.topic_alias = alias.alias;
    if (alias.known) publish.topic = {};
    size_t size = mqtt::encoded_size(publish, c.version);
    if (size > c.maximum_packet_size) {
        count_dropped(*c.session, counters_.dropped_too_large);
        return false;
    }
    if (message.payload().size() >= Route::kSharedPayload) {
        mqtt::encode_publish_head(publish, c.version, c.outbox.tail());
        c.outbox.append_shared(kept, kept->payload());
    } else {
        mqtt::encode(publish, c.version, c.outbox.tail());
    }
    if (alias.alias != 0 && !alias.known) c.outgoing_aliases.define(alias.alias, message.topic);
    count_publish(c, message.payload().size());
    sent(c, size);
    return true;
}

}  // namespace pgmqtt::broker
