// UNSUBSCRIBE and UNSUBACK, sections 3.10 and 3.11.
#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::handle_unsubscribe(Connection& c, const mqtt::Unsubscribe& unsubscribe) {
    Session& session = *c.session;
    mqtt::Unsuback unsuback;
    unsuback.packet_id = unsubscribe.packet_id;
    bool changed = false;
    for (ByteView filter : unsubscribe.filters) {
        ReasonCode code = ReasonCode::kNoSubscriptionExisted;
        auto found = session.subscriptions.find(filter);  // byte by byte [MQTT-3.10.4-1]
        if (found != session.subscriptions.end()) {
            code = ReasonCode::kSuccess;
            changed = true;
            if (session.persistent) {
                StoreRecord record{.kind = StoreKind::kUnsubscribe, .session_id = session.id};
                record.subscription.filter = filter;
                put(record);
            }
            state_bytes_ -= subscription_cost(filter);
            session.subscription_levels -= found->second.levels;
            subscriptions_.remove(found->second);
            session.subscriptions.erase(found);
            forget_retained_run(session, filter);
            --counters_.subscriptions;
        }
        unsuback.codes.push_back(static_cast<uint8_t>(code));  // [MQTT-3.11.3-1]
    }
    if (c.version != Version::k5) unsuback.codes.clear();
    answer(c, unsuback, session.persistent && changed);
}

}  // namespace pgmqtt::broker
