// The message of the current route to one receiver: into its outbox now, or into its queue.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::deliver(const Target& target, Routed& routed) {
    Session& session = *target.session;
    Qos qos = std::min(route_.qos, target.qos);                 // [MQTT-3.8.4-8]
    bool retain = target.retain_as_published && route_.retain;  // [MQTT-3.3.1-12] [MQTT-3.3.1-13]
    if (session.persistent && qos != Qos::k0) return deliver_stored(target, qos, retain, routed);
    Connection* c = online(session);
    if (c == nullptr || c->doomed) return;  // QoS 0 does not wait for absent clients

    if (must_queue(session, qos)) {
        if (make_room(session, qos, route_bytes())) {
            push_queue(session, route_delivery(target, qos, retain, true));
        }
        return;
    }
    if (qos == Qos::k0 && still_overflows(session, *c)) {
        count_dropped(session, counters_.dropped_slow_qos0);
        return;
    }
    // Nobody can ask for it again, but for another member of its group.
    Delivery delivery{.qos = qos, .retain = retain};
    if (qos != Qos::k0 && target.share != 0) delivery = route_delivery(target, qos, retain, true);
    send_now(*c, target, delivery);
    if (qos == Qos::k0) note_output(session);
}

// For a session that a restart has to remember.
void Broker::State::deliver_stored(const Target& target, Qos qos, bool retain, Routed& routed) {
    Session& session = *target.session;
    bool waits = online(session) == nullptr || must_queue(session, qos);
    if (waits && !make_room(session, qos, route_bytes())) return;
    bool at_once = !waits && qos == Qos::k1 && session.window.next_unsent() == nullptr;
    bool with_message = !at_once && (!waits || may_be_near(session, route_bytes()));
    Delivery delivery = route_delivery(target, qos, retain, with_message);
    save_delivery(session, delivery, &routed);
    if (at_once) {
        if (!send_now(*online(session), target, delivery)) end_delivery(session, delivery);
    } else if (waits) {
        push(session, std::move(delivery));
    } else {
        session.window.push(std::move(delivery));
        ++counters_.inflight;
    }
}

Delivery Broker::State::route_delivery(const Target& target, Qos qos, bool retain,
                                       bool with_message) {
    Delivery delivery{.message = with_message ? route_message() : nullptr,
                      .qos = qos,
                      .retain = retain,
                      .published_qos = route_.qos,
                      .published_retain = route_.retain,
                      .identifiers = {},
                      .share = target.share,
                      .bytes = static_cast<uint32_t>(route_bytes()),
                      .expires = route_.expires};
    for (uint32_t link = target.identifiers; link != kNoLink; link = route_.links[link].next) {
        delivery.identifiers.push_back(route_.links[link].identifier);
    }
    return delivery;
}

// What waits goes first [MQTT-4.6.0-5]. QoS 0 passes waiting QoS 1 and 2, which is another order,
// but not retained messages: those may be of its own topic.
bool Broker::State::must_queue(const Session& session, Qos qos) const {
    if (!session.retained.empty() || session.queued_qos0 > 0) return true;
    if (qos == Qos::k0) return false;
    const Connection* c = online(session);
    return c == nullptr || c->doomed || session.queued() > 0 ||
           !session.window.has_room(window_limit(*c)) || c->outbox.size() > output_limit();
}

size_t Broker::State::window_limit(const Connection& c) const {
    return std::min<size_t>(c.receive_maximum, std::max<uint16_t>(config_.max_inflight, 1));
}

// False when it is too large for the client. If not, QoS 1 and 2 enter the window.
bool Broker::State::send_now(Connection& c, const Target& target, Delivery& delivery) {
    Qos qos = delivery.qos;
    bool retain = delivery.retain;
    mqtt::Publish& publish = *route_.publish;
    OutgoingAliases::Choice alias = choose_alias(c);
    bool has_identifiers = target.identifiers != kNoLink && c.version == Version::k5;
    const Variant& encoded = has_identifiers || alias.alias != 0
                                 ? odd_variant(c, target, qos, retain, alias)
                                 : variant(c.version, qos, retain);
    bool shared = publish.payload.size() >= Route::kSharedPayload;
    size_t size = encoded.bytes.size() + (shared ? publish.payload.size() : 0);
    if (size > c.maximum_packet_size) {  // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
        count_dropped(*target.session, counters_.dropped_too_large);
        return false;
    }
    std::string& tail = c.outbox.tail();
    size_t start = tail.size();
    tail.append(encoded.bytes);
    if (qos != Qos::k0) {
        delivery.may_be_sent = true;
        uint16_t id = target.session->window.push_sent(std::move(delivery));
        ++counters_.inflight;
        tail[start + encoded.identifier_at] = static_cast<char>(id >> 8);
        tail[start + encoded.identifier_at + 1] = static_cast<char>(id & 0xFF);
    }
    if (shared) {
        const MessagePtr& message = route_message();
        c.outbox.append_shared(message, message->payload());
    }
    if (alias.alias != 0 && !alias.known) c.outgoing_aliases.define(alias.alias, publish.topic);
    count_publish(c, publish.payload.size());
    sent(c, size);
    return true;
}

OutgoingAliases::Choice Broker::State::choose_alias(Connection& c) {
    ByteView topic = route_.publish->topic;
    if (!c.outgoing_aliases.allowed() || !OutgoingAliases::worth_it(topic)) return {};
    if (route_.hashed != route_.number) {
        route_.topic_hash = base::hash(topic, seed_);
        route_.hashed = route_.number;
    }
    return c.outgoing_aliases.choose(topic, route_.topic_hash);
}

// For a receiver that shares its bytes with nobody.
const Variant& Broker::State::odd_variant(const Connection& c, const Target& target, Qos qos,
                                          bool retain, OutgoingAliases::Choice alias) {
    mqtt::Publish& publish = *route_.publish;
    ByteView topic = publish.topic;
    publish.qos = qos;
    publish.retain = retain;
    publish.properties.subscription_identifiers.clear();
    for (uint32_t link = target.identifiers; link != kNoLink; link = route_.links[link].next) {
        publish.properties.subscription_identifiers.push_back(route_.links[link].identifier);
    }
    if (alias.alias != 0) publish.properties.topic_alias = alias.alias;
    if (alias.known) publish.topic = {};
    encode_variant(route_.odd, c.version);
    publish.topic = topic;
    publish.properties.topic_alias.reset();
    publish.properties.subscription_identifiers.clear();
    return route_.odd;
}

const Variant& Broker::State::variant(Version version, Qos qos, bool retain) {
    size_t index = (version == Version::k5 ? 6u : 0u) + static_cast<size_t>(qos) * 2 +
                   static_cast<size_t>(retain);
    Variant& variant = route_.variants[index];
    if (variant.route == route_.number) return variant;
    route_.publish->qos = qos;
    route_.publish->retain = retain;
    encode_variant(variant, version);
    variant.route = route_.number;
    return variant;
}

void Broker::State::encode_variant(Variant& variant, Version version) {
    const mqtt::Publish& publish = *route_.publish;
    variant.bytes.clear();
    if (publish.payload.size() >= Route::kSharedPayload) {
        mqtt::encode_publish_head(publish, version, variant.bytes);
    } else {
        mqtt::encode(publish, version, variant.bytes);
    }
    // Behind the fixed header and the topic.
    size_t header = 2;
    while (static_cast<uint8_t>(variant.bytes[header - 1]) >= 0x80) ++header;
    variant.identifier_at = header + 2 + publish.topic.size();
}

bool Broker::State::within_queue_limits(const Session& session, size_t bytes) const {
    return session.queued() < config_.max_queued_messages &&
           session.queued_bytes + bytes <= config_.max_queued_bytes;
}

// When memory is scarce a long queue is full, whatever its own limits. A short one may be of a
// client that is only slow for a moment; one in the store takes next to nothing.
bool Broker::State::fits_queue(const Session& session, Qos qos, size_t bytes) const {
    constexpr size_t kShortQueue = 16;
    if (!within_queue_limits(session, bytes)) return false;
    if (is_stored(session, qos)) {
        return far_entries_ * sizeof(StoredEntry) < config_.max_memory / 2;
    }
    Pressure now = pressure();
    return now == Pressure::kNone || (now == Pressure::kCrowded && session.queued() < kShortQueue);
}

// False when the message is dropped.
bool Broker::State::make_room(Session& session, Qos qos, size_t bytes) {
    if (fits_queue(session, qos, bytes)) return true;
    if (qos == Qos::k0) {
        count_dropped(session, counters_.dropped_slow_qos0);
        return false;
    }
    if (config_.queue_policy == QueuePolicy::kDropOldest && bytes <= config_.max_queued_bytes) {
        // Not more than the new one needs: others, too, keep memory scarce.
        uint64_t before = session.queued_bytes;
        size_t count = session.queued();
        while (session.queued() > 0 &&
               (!within_queue_limits(session, bytes) || session.queued() == count ||
                before - session.queued_bytes < bytes)) {
            if (fits_queue(session, qos, bytes)) return true;
            drop_queued(session);
            count_dropped(session, counters_.dropped_queue_full);
        }
        if (fits_queue(session, qos, bytes)) return true;
        if (within_queue_limits(session, bytes) && !is_stored(session, qos) &&
            pressure() != Pressure::kFull) {
            return true;
        }
    }
    count_dropped(session, counters_.dropped_queue_full);
    if (config_.queue_policy == QueuePolicy::kDisconnect && online(session) != nullptr) {
        session.connection->doomed = true;
        doomed_.push_back(session.connection->id);
    }
    // kReject comes here only with publishers that cannot be told no.
    return false;
}

}  // namespace pgmqtt::broker
