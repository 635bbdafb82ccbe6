// What clients make us keep without publishing anything: sessions, subscriptions and wills. They
// may take half of Config::max_memory; then new ones are refused, and the other half is for
// messages. What was loaded at start counts, and stays.
#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

namespace {

// What the entries in maps, the tree and the heap cost around the bytes of the client, measured
// with short strings.
constexpr uint64_t kAroundSession = sizeof(Session) + 200;
constexpr uint64_t kAroundSubscription = sizeof(Subscription) + 150;
constexpr uint64_t kAroundLevel = 64;

}  // namespace

// The client identifier is also the key.
uint64_t Broker::State::session_cost(ByteView client_id, ByteView username) {
    return kAroundSession + 2 * client_id.size() + username.size();
}

// Once as the key, once as the levels of the tree.
uint64_t Broker::State::subscription_cost(ByteView filter) {
    return kAroundSubscription + 2 * filter.size() + mqtt::level_count(filter) * kAroundLevel;
}

bool Broker::State::has_room_for_state(uint64_t bytes) const {
    return state_bytes_ + bytes <= config_.max_memory / 2;
}

}  // namespace pgmqtt::broker
