// SUBSCRIBE and SUBACK, sections 3.8 and 3.9.
#include <algorithm>
#include <utility>

#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

namespace {

// A filter may have 65,536 levels, and each is memory. A session may have one such, or as many
// levels as its filters would have at this many each.
constexpr size_t kLevelsPerSubscription = 64;
constexpr size_t kMinLevels = 65536;

uint8_t suback_code(Version version, ReasonCode code) {
    constexpr uint8_t kFailure = 0x80;  // the only one of 3.1.1
    return is_error(code) && version != Version::k5 ? kFailure : static_cast<uint8_t>(code);
}

}  // namespace

void Broker::State::handle_subscribe(Connection& c, const mqtt::Subscribe& subscribe) {
    Session& session = *c.session;
    const std::vector<uint32_t>& identifiers = subscribe.properties.subscription_identifiers;
    uint32_t identifier = identifiers.empty() ? 0 : identifiers.front();

    mqtt::Suback suback;
    suback.packet_id = subscribe.packet_id;
    bool changed = false;
    for (const mqtt::Subscription& wanted : subscribe.subscriptions) {  // [MQTT-3.8.4-5]
        bool is_new = false;
        ReasonCode code = subscribe_one(session, wanted, identifier, is_new);
        suback.codes.push_back(suback_code(c.version, code));
        if (is_error(code)) continue;
        changed = true;
        if (session.persistent) {
            save_subscription(session, wanted, static_cast<Qos>(code), identifier);
        }
        // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
        auto shared = mqtt::parse_shared_filter(wanted.filter);
        if (is_sys_filter(shared ? shared->filter : wanted.filter)) hear_sys();
        bool retained = wanted.retain_handling == 0 || (wanted.retain_handling == 1 && is_new);
        if (shared) retained = false;  // section 4.8.2
        if (retained) queue_retained(session, wanted, static_cast<Qos>(code), identifier);
    }
    answer(c, suback, session.persistent && changed);
}

// SUBACK and UNSUBACK.
void Broker::State::answer(Connection& c, const mqtt::Packet& packet, bool when_stored) {
    if (!when_stored) {
        send(c, packet);
        if (c.phase == Phase::kConnected) pump(*c.session);
        return;
    }
    bytes_.clear();
    mqtt::encode(packet, c.version, bytes_);
    if (bytes_.size() > c.maximum_packet_size) {
        return disconnect_for(c, ReasonCode::kPacketTooLarge, "answer is over its maximum");
    }
    wait_for_store({.kind = StoreWait::Kind::kPacket, .connection = c.id, .packet = bytes_});
}

// The granted QoS, or an error.
ReasonCode Broker::State::subscribe_one(Session& session, const mqtt::Subscription& wanted,
                                        uint32_t identifier, bool& is_new) {
    // Shared ones are for 3.1.1 as well, to which the codec takes them for filters like any other.
    bool valid = mqtt::is_shared_filter(wanted.filter) ? mqtt::is_valid_shared_filter(wanted.filter)
                                                       : mqtt::is_valid_topic_filter(wanted.filter);
    if (!valid) return ReasonCode::kTopicFilterInvalid;
    is_new = !session.subscriptions.contains(wanted.filter);
    if (is_new && !may_subscribe(session, wanted.filter)) return ReasonCode::kQuotaExceeded;
    put_subscription(session, wanted, identifier);
    return static_cast<ReasonCode>(wanted.qos);
}

bool Broker::State::may_subscribe(const Session& session, ByteView filter) const {
    size_t max_levels = std::max(kMinLevels, config_.max_subscriptions * kLevelsPerSubscription);
    return session.subscriptions.size() < config_.max_subscriptions &&
           session.subscription_levels + mqtt::level_count(filter) <= max_levels &&
           has_room_for_state(subscription_cost(filter));
}

// New, or in place of the one with this filter [MQTT-3.8.4-3].
void Broker::State::put_subscription(Session& session, const mqtt::Subscription& wanted,
                                     uint32_t identifier) {
    auto found = session.subscriptions.find(wanted.filter);
    if (found == session.subscriptions.end()) {
        found = session.subscriptions.try_emplace(std::string(wanted.filter)).first;
        found->second.session = &session;
        subscriptions_.add(wanted.filter, found->second);
        session.subscription_levels += mqtt::level_count(wanted.filter);
        state_bytes_ += subscription_cost(wanted.filter);
        ++counters_.subscriptions;
        if (found->second.group != nullptr) ++counters_.shared_subscriptions;
    }
    Subscription& subscription = found->second;
    subscription.qos = wanted.qos;
    subscription.no_local = wanted.no_local;
    subscription.retain_as_published = wanted.retain_as_published;
    subscription.identifier = identifier;
}

void Broker::State::remove_subscription(ByteView filter, Subscription& subscription) {
    state_bytes_ -= subscription_cost(filter);
    if (subscription.group != nullptr) --counters_.shared_subscriptions;
    --counters_.subscriptions;
    subscriptions_.remove(subscription);
}

void Broker::State::forget_subscriptions(Session& session) {
    for (auto& [filter, subscription] : session.subscriptions) {
        remove_subscription(filter, subscription);
    }
    session.subscriptions.clear();
}

void Broker::State::queue_retained(Session& session, const mqtt::Subscription& wanted, Qos granted,
                                   uint32_t identifier) {
    forget_retained_run(session, wanted.filter);
    auto add_run = [&](bool is_sys) {
        RetainedRun run;
        run.filter = wanted.filter;
        run.is_sys = is_sys;
        run.qos = granted;
        run.identifier = identifier;
        run.since = retained_.last_number();
        session.retained.push_back(std::move(run));
    };
    if (retained_.count() > 0) add_run(false);
    if (config_.sys_interval_ms > 0 && is_sys_filter(wanted.filter)) {
        refresh_sys();
        add_run(true);
    }
}

// What the filter still had to come does not come any more.
void Broker::State::forget_retained_run(Session& session, ByteView filter) {
    for (size_t i = session.retained.size(); i-- > 0;) {
        if (session.retained[i].filter == filter) session.retained.erase(i);
    }
}

}  // namespace pgmqtt::broker
