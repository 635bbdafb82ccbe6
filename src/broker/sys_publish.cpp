// `$SYS/broker/...` to who listens. Nothing of it is stored or counts as retained: a new subscriber
// gets what is true at that moment, and from then on every sys_interval what has changed. The timer
// runs as long as somebody hears it.
#include <algorithm>
#include <utility>

#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::sample_load() {
    if (started_ == base::kNever) started_ = now_.mono;
    load_.sample(now_.mono, counters_);
}

base::MonoTime Broker::State::next_sys() const {
    if (!sys_heard_ || config_.sys_interval_ms == 0) return base::kNever;
    return sys_told_at_ + std::chrono::milliseconds(config_.sys_interval_ms);
}

// Somebody may listen from now on. Who does not subscribe now but comes back is not told what did
// not change meanwhile, as with any retained message.
void Broker::State::hear_sys() {
    if (sys_heard_ || config_.sys_interval_ms == 0) return;
    sys_heard_ = true;
    sys_told_at_ = now_.mono;
    // Nobody waits for what is not told yet.
    refresh_sys();
    for (SysValue& value : sys_values_) value.told = true;
}

// For sinks and settings, which come without the time: all values at the next tick.
void Broker::State::hear_sys_at_once() {
    bool wanted = config_.sys_interval_ms > 0 && subscriptions_.has_first_level(kSysLevel);
    if (!wanted || sys_heard_) return;
    sys_heard_ = true;
    sys_told_at_ = base::MonoTime{};
    for (SysValue& value : sys_values_) value.told = false;
}

void Broker::State::refresh_sys() {
    load_.sample(now_.mono, counters_);
    auto uptime = std::chrono::floor<std::chrono::seconds>(now_.mono - started_);
    size_t index = 0;
    describe_sys_topics(counters(), load_, uptime, [&](ByteView topic, std::string text) {
        if (index == sys_values_.size()) sys_values_.emplace_back();
        SysValue& value = sys_values_[index++];
        if (value.message && value.message->payload() == text) return;
        auto message = std::make_shared<Message>();
        message->topic = topic;
        message->copy_payload(std::move(text));
        message->retain = true;
        message->received_at = now_.wall;
        message->charge(message_bytes_);
        value.message = message;
        value.told = false;
        sys_retained_.set(std::move(message));
    });
}

// Whether somebody who is there subscribes.
bool Broker::State::is_heard(const std::vector<Subscription*>& matches) {
    auto is_online = [](const Subscription* subscription) {
        return online(*subscription->session) != nullptr;
    };
    return std::any_of(matches.begin(), matches.end(), [&](const Subscription* found) {
        if (found->sink != nullptr) return true;
        if (found->group == nullptr) return is_online(found);
        const auto& members = found->group->members;
        return std::any_of(members.begin(), members.end(), is_online);
    });
}

void Broker::State::publish_sys() {
    sys_told_at_ = now_.mono;
    sys_heard_ = false;
    if (!subscriptions_.has_first_level(kSysLevel)) return;
    refresh_sys();
    std::vector<Subscription*> matches;
    for (SysValue& value : sys_values_) {
        matches.clear();
        subscriptions_.match(value.message->topic, matches);
        if (is_heard(matches)) sys_heard_ = true;
        if (!std::exchange(value.told, true) && !matches.empty()) tell(*value.message);
    }
}

// At QoS 0: who is away does not miss what will be old when it comes back.
void Broker::State::tell(const Message& value) {
    mqtt::Publish publish;
    publish.topic = value.topic;
    publish.payload = value.payload();
    publish.retain = true;  // for Retain As Published
    Origin origin;
    origin.is_sys = true;
    origin.has_properties = false;
    origin.received_at = now_.wall;
    route(publish, origin, now_);
}

}  // namespace pgmqtt::broker
