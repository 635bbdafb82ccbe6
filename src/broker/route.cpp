// A message to its receivers. One message at a time: route_ is the scratch of the current one.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

Routed Broker::State::route(mqtt::Publish& publish, const Origin& origin, Now now) {
    begin_route(publish, origin, now);
    subscriptions_.match(publish.topic, route_.matches);
    aim(origin);

    Routed routed;
    if (route_.matches.empty()) routed.reason = ReasonCode::kNoMatchingSubscribers;
    if (origin.refusable && would_be_rejected()) {
        // Nobody gets it: the publisher will try again, and then nobody gets it twice.
        ++counters_.dropped_queue_full;
        return {.reason = ReasonCode::kQuotaExceeded};
    }
    if (route_.retain && !origin.is_sys && !retain(routed) && origin.refusable) {
        return {.reason = ReasonCode::kQuotaExceeded};
    }
    if (!route_.sink_record.sink_ids.empty()) hand_to_sinks(origin, routed);
    for (const Target& target : route_.targets) deliver(target, routed);
    route_.message.reset();
    return routed;
}

void Broker::State::begin_route(mqtt::Publish& publish, const Origin& origin, Now now) {
    ++route_.number;
    route_.message.reset();
    route_.stored = {};
    route_.publish = &publish;
    route_.qos = publish.qos;
    route_.retain = publish.retain;
    route_.input = origin.input;
    route_.paced = origin.paced;
    route_.now = now;
    route_.received_at = origin.received_at;
    route_.expires_at = base::WallTime::max();
    route_.expires = base::kNever;
    if (auto interval = publish.properties.message_expiry_interval) {
        route_.expires_at = now.wall + std::chrono::seconds(*interval);
        route_.expires = now.mono + std::chrono::seconds(*interval);
    }
    route_.properties_encoded = !origin.has_properties || origin.encoded_properties.has_value();
    route_.properties.assign(origin.encoded_properties.value_or(ByteView{}));
    publish.dup = false;  // [MQTT-3.3.1-3]
    publish.properties.subscription_identifiers.clear();

    route_.matches.clear();
    route_.targets.clear();
    route_.links.clear();
    route_.sink_record.sink_ids.clear();
    route_.sinks_must_confirm = false;
}

// Many matches may be one receiver: each gets one copy.
void Broker::State::aim(const Origin& origin) {
    for (Subscription* subscription : route_.matches) {
        if (subscription->group != nullptr) {
            aim_at_group(*subscription->group);
        } else if (subscription->sink != nullptr) {
            aim_at_sink(*subscription);
        } else if (!subscription->no_local || subscription->session != origin.session) {
            aim_at_session(*subscription);  // else [MQTT-3.8.3-3]
        }
    }
}

void Broker::State::aim_at_sink(Subscription& subscription) {
    if (subscription.qos != Qos::k0) route_.sinks_must_confirm = true;
    RouteMark& mark = subscription.sink->mark;
    if (mark.route == route_.number) return;
    mark.route = route_.number;
    route_.sink_record.sink_ids.push_back(subscription.sink->id);
}

void Broker::State::aim_at_session(Subscription& subscription) {
    RouteMark& mark = subscription.session->mark;
    if (mark.route != route_.number) {
        mark = {route_.number, static_cast<uint32_t>(route_.targets.size())};
        route_.targets.push_back({.session = subscription.session});
    }
    Target& target = route_.targets[mark.target];
    target.qos = std::max(target.qos, subscription.qos);
    target.retain_as_published |= subscription.retain_as_published;
    if (subscription.identifier != 0) {
        route_.links.push_back({subscription.identifier, target.identifiers});
        target.identifiers = static_cast<uint32_t>(route_.links.size() - 1);
    }
}

// queue_policy = reject: whether a receiver has no room.
bool Broker::State::would_be_rejected() {
    if (config_.queue_policy != QueuePolicy::kReject) return false;
    for (const Target& target : route_.targets) {
        const Session& session = *target.session;
        bool reliable = std::min(route_.qos, target.qos) != Qos::k0;
        if (!reliable || !must_queue(session, Qos::k1)) continue;
        if (!fits_queue(session, Qos::k1, route_bytes())) return true;
    }
    return false;
}

// False when a limit is in the way: nothing is retained then, and what was stays.
bool Broker::State::retain(Routed& routed) {
    const mqtt::Publish& publish = *route_.publish;
    if (publish.payload.empty()) {
        // Deletes, and is not itself retained [MQTT-3.3.1-6] [MQTT-3.3.1-7].
        if (!retained_.erase(publish.topic)) return true;
        StoreRecord record{.kind = StoreKind::kUnretain, .message = {}};
        record.message.topic = publish.topic;
        pending_.add_store(pending_of(routed), record, turn_.store);
    } else {
        const MessagePtr& message = route_message();
        if (!retained_.fits(*message, retained_limits())) {
            ++counters_.dropped_retained_limit;
            return false;
        }
        bool replaces = retained_.set(message);
        StoreRecord record{
            .kind = StoreKind::kRetain, .message = message->view(), .replaces = replaces};
        pending_.add_store(pending_of(routed), record, turn_.store);
    }
    routed.must_wait = true;
    return true;
}

void Broker::State::hand_to_sinks(const Origin& origin, Routed& routed) {
    SinkRecord& record = route_.sink_record;
    record.client_id = origin.client_id;
    record.username = origin.username;
    record.message = route_view();
    identify(origin, record);
    pending_.add_sink(pending_of(routed), record, turn_.sink);
    if (route_.sinks_must_confirm) routed.must_wait = routed.waits_for_sink = true;
}

// For who wants to know a repetition of QoS 1, which the broker does not remember.
void Broker::State::identify(const Origin& origin, SinkRecord& record) {
    bool may_come_again =
        origin.packet_id != 0 && origin.session != nullptr && origin.session->persistent;
    record.packet_id = may_come_again ? origin.packet_id : uint16_t{0};
    record.dup = may_come_again && origin.dup;
    record.session_id = may_come_again ? origin.session->id : 0;
    record.session_created_at = may_come_again ? origin.session->created_at : base::WallTime{};
}

Pending::PublishId Broker::State::pending_of(Routed& routed) {
    if (routed.pending == Pending::kNone) routed.pending = pending_.open(routed.reason);
    return routed.pending;
}

// Large ones stay where they came in: with 256 KiB, copying was a fifth of the broker's time.
void Broker::State::keep_payload(Message& message) {
    ByteView payload = route_.publish->payload;
    base::KeptInput kept;
    if (route_.input != nullptr && payload.size() >= Route::kKeptPayload) {
        kept = route_.input->keep(payload.size());
    }
    if (kept.owner == nullptr) return message.copy_payload(std::string(payload));
    message.keep_payload(payload, std::move(kept));
}

// The message on its own, for who keeps it. Made once, however many keep it.
const MessagePtr& Broker::State::route_message() {
    if (!route_.message) {
        const mqtt::Publish& publish = *route_.publish;
        auto message = std::make_shared<Message>();
        message->topic = publish.topic;
        keep_payload(*message);
        message->properties = route_properties();
        message->qos = route_.qos;
        message->retain = route_.retain;
        message->received_at = route_.received_at;
        message->expires_at = route_.expires_at;
        message->expires = route_.expires;
        message->charge(message_bytes_);
        route_.message = std::move(message);
    }
    return route_.message;
}

MessageView Broker::State::route_view() {
    const mqtt::Publish& publish = *route_.publish;
    return {publish.topic,      publish.payload,    route_.qos,       route_.retain,
            route_properties(), route_.received_at, route_.expires_at};
}

size_t Broker::State::route_bytes() {
    return route_.publish->topic.size() + route_.publish->payload.size() +
           route_properties().size();
}

ByteView Broker::State::route_properties() {
    if (!route_.properties_encoded) {
        mqtt::encode_message_properties(route_.publish->properties, route_.properties);
        route_.properties_encoded = true;
    }
    return route_.properties;
}

RetainedLimits Broker::State::retained_limits() const {
    return {config_.max_retained, config_.max_retained_bytes};
}

}  // namespace pgmqtt::broker
