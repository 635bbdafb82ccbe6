// What waited for a client goes on as far as its window and its outbox allow: first the retained
// messages of new subscriptions, then the queue. So 10,000 retained messages take no more of the
// outbox than any other flow, and nothing overtakes them.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::pump(Session& session, Now now) {
    bool took = false;
    while (pump_retained(session, now) || pump_queue(session, now)) took = true;
    if (took) note_taken(session, now);
}

bool Broker::State::can_send(Session& session, Qos qos) {
    const Connection& c = *session.connection;
    if (c.doomed || c.outbox.size() > output_limit()) return false;
    return qos == Qos::k0 || !session.window.full(window_limit(c));
}

// True when there was something to do.
bool Broker::State::pump_retained(Session& session, Now now) {
    if (session.retained.empty()) return false;
    RetainedRun& run = session.retained.front();
    if (!can_send(session, Qos::k0)) return false;
    if (!run.next && !find_retained(*session.connection, run)) {
        if (!run.cursor->done()) return false;
        session.retained.pop_front();
        return true;
    }
    const MessagePtr message = run.next;
    // The subscription got what was retained later as it was published; an older message after a
    // newer one would be wrong, and so would one that was cleared.
    if (message->superseded || message->retained_number > run.since || message->expired(now.mono)) {
        run.next.reset();
        return true;
    }
    Qos qos = std::min(message->qos, run.qos);
    if (!can_send(session, qos)) return false;
    size_t identifiers = run.identifier != 0 ? 1 : 0;
    send_kept(session, message, qos, true, &run.identifier, identifiers, now);
    run.next.reset();
    return true;
}

// False when the search is over, or goes on in the next turn.
bool Broker::State::find_retained(Connection& c, RetainedRun& run) {
    if (!run.cursor) run.cursor.emplace(retained_, run.filter);
    size_t share = std::min(search_budget_, kSearchShare);
    size_t left = share;
    run.next = run.cursor->next(left);
    search_budget_ -= share - left;
    if (run.next) return true;
    if (!run.cursor->done()) pump_later(c);
    return false;
}

bool Broker::State::pump_queue(Session& session, Now now) {
    if (!session.retained.empty() || session.queue.empty()) return false;
    const Delivery& first = session.queue.front();
    if (first.message->expired(now.mono)) {
        ++counters_.dropped_expired;
        pop_queue(session);
        return true;
    }
    if (!can_send(session, first.qos)) return false;
    send_kept(session, first.message, first.qos, first.retain, first.identifiers.data(),
              first.identifiers.size(), now);
    pop_queue(session);
    return true;
}

void Broker::State::send_kept(Session& session, const MessagePtr& kept, Qos qos, bool retain,
                              const uint32_t* identifiers, size_t identifier_count, Now now) {
    Connection& c = *session.connection;
    const Message& message = *kept;
    mqtt::Publish& publish = outgoing_;
    publish.topic = message.topic;
    publish.payload = message.payload;
    publish.qos = qos;
    publish.retain = retain;
    publish.packet_id = 0;
    publish.properties.clear();
    if (c.version == Version::k5) {
        // They were valid when they came; if not, they are empty now.
        if (!mqtt::decode_message_properties(message.properties, publish.properties).ok()) {
            publish.properties.clear();
        }
        if (message.expires != base::kNever) {  // less what it waited here [MQTT-3.3.2-6]
            auto left = std::chrono::ceil<std::chrono::seconds>(message.expires - now.mono);
            publish.properties.message_expiry_interval =
                static_cast<uint32_t>(std::max<int64_t>(left.count(), 0));
        }
        publish.properties.subscription_identifiers.assign(identifiers,
                                                           identifiers + identifier_count);
    }
    OutgoingAliases::Choice alias;
    if (c.outgoing_aliases.allowed() && OutgoingAliases::worth_it(message.topic)) {
        alias = c.outgoing_aliases.choose(message.topic, base::hash(message.topic, seed_));
    }
    if (alias.alias != 0) publish.properties.topic_alias = alias.alias;
    if (alias.known) publish.topic = {};
    size_t size = mqtt::encoded_size(publish, c.version);
    if (size > c.maximum_packet_size) {  // [MQTT-3.1.2-24]; it takes no place in the window
        ++counters_.dropped_too_large;
        return;
    }
    if (qos == Qos::k1) {
        publish.packet_id = session.window.start();
        ++counters_.inflight;
    }
    if (message.payload.size() >= Route::kSharedPayload) {
        mqtt::encode_publish_head(publish, c.version, c.outbox.tail());
        c.outbox.append_shared({kept, &kept->payload}, kept->payload);
    } else {
        mqtt::encode(publish, c.version, c.outbox.tail());
    }
    if (alias.alias != 0 && !alias.known) c.outgoing_aliases.define(alias.alias, message.topic);
    ++counters_.publishes_out;
    sent(c, size);
}

}  // namespace pgmqtt::broker
