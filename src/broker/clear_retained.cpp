// Retained messages that an administrator clears: each as an empty retained message on its topic
// would, so that who listens hears of it and the store does what it always does.
#include "broker/clearing.h"
#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

// In one turn. A filter with `+` may look at much that does not match.
constexpr int kMessages = 1000;
constexpr size_t kSteps = 20000;

}  // namespace

std::unique_ptr<Clearing> Broker::State::begin_clearing(ByteView filter) {
    return std::make_unique<Clearing>(RetainedCursor(retained_, filter));
}

// Waits for slow clients and for memory, as all publishes from SQL do.
bool Broker::State::clear_some(Clearing& clearing, Now now) {
    bool stored = pending_.stored_batch() >= clearing.batch;
    if (clearing.cursor.done() || !takes_publishes()) return clearing.cursor.done() && stored;
    begin_input(now);
    size_t budget = kSteps;
    for (int i = 0; i < kMessages; ++i) {
        MessagePtr message = clearing.cursor.next(budget);
        if (!message) break;
        if (message->expired(now.mono)) continue;  // its time has come anyway
        MessageView empty;
        empty.topic = message->topic;
        empty.qos = message->qos;
        empty.retain = true;
        empty.received_at = now.wall;
        empty.expires_at = base::WallTime::max();
        route_stored(empty, {}, now);
        ++clearing.cleared;
        clearing.batch = pending_.store_batch();
    }
    settle(now);
    return clearing.cursor.done() && pending_.stored_batch() >= clearing.batch;
}

}  // namespace pgmqtt::broker
