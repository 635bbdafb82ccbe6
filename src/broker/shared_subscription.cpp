// Shared subscriptions, section 4.8.2: which member of a group gets the message.
#include <algorithm>

#include "broker/state.h"

namespace pgmqtt::broker {

namespace {

// The lower, the sooner the client has the message.
enum Readiness : int { kAtOnce, kQueued, kWhenItIsBack, kNoRoom };

}  // namespace

// A copy of its own, also for who has it by another subscription: section 4.8.2.
void Broker::State::aim_at_group(ShareGroup& group) {
    const Subscription& member = choose_member(group, route_.qos, route_.publish->payload.size());
    Target target{.session = member.session,
                  .qos = member.qos,
                  .retain_as_published = member.retain_as_published,
                  .share = group.id};
    if (member.identifier != 0) {
        route_.links.push_back({member.identifier, kNoLink});
        target.identifiers = static_cast<uint32_t>(route_.links.size() - 1);
    }
    route_.targets.push_back(target);
}

// In turn, but the slow and the absent are passed over while there is somebody else.
Subscription& Broker::State::choose_member(ShareGroup& group, Qos qos, size_t bytes) {
    size_t count = group.members.size();
    size_t best = 0;
    int best_readiness = kNoRoom + 1;
    for (size_t i = 0; i < count && best_readiness != kAtOnce; ++i) {
        size_t index = (group.next + i) % count;
        const Subscription& member = *group.members[index];
        int found = readiness(*member.session, std::min(qos, member.qos), bytes);
        if (found >= best_readiness) continue;
        best_readiness = found;
        best = index;
    }
    group.next = best + 1;
    return *group.members[best];
}

int Broker::State::readiness(const Session& session, Qos qos, size_t bytes) const {
    const Connection* c = online(session);
    if (c == nullptr || c->doomed) {
        return qos != Qos::k0 && fits_queue(session, qos, bytes) ? kWhenItIsBack : kNoRoom;
    }
    if (must_queue(session, qos)) return fits_queue(session, qos, bytes) ? kQueued : kNoRoom;
    bool dropped = qos == Qos::k0 && overflows(session, *c);
    return dropped ? kNoRoom : kAtOnce;
}

// The session ends, and what it has not acknowledged goes to another member, section 4.8.2. Not
// what it may have received with QoS 2 [MQTT-4.8.2-5]; what it refused is not in flight any more
// [MQTT-4.8.2-6].
void Broker::State::hand_over(Session& session) {
    for (size_t i = 0; i < session.window.publish_count(); ++i) {
        hand_over(session.window.publish(i));
    }
    session.queue.for_each([&](const Delivery& delivery) { hand_over(delivery); });
    session.far.for_each([&](const StoredEntry& entry) {
        if (entry.share != 0) hand_over(delivery_of(session, entry));
    });
}

void Broker::State::hand_over(const Delivery& delivery) {
    if (delivery.share == 0 || (!delivery.message && delivery.stored.id == 0)) return;
    if (delivery.qos == Qos::k2 && delivery.may_be_sent) return;
    orphans_.push_back({.share = delivery.share,
                        .message = delivery.message,
                        .stored = delivery.stored,
                        .bytes = delivery.bytes,
                        .expires = delivery.expires,
                        .qos = delivery.published_qos,
                        .retain = delivery.published_retain});
}

// Its message may be in the store only. Then the delivery to the new member refers to it there, in
// the batch in which the old one ends; also when the member's session is not otherwise stored.
void Broker::State::deliver_orphan(const Orphan& orphan) {
    ShareGroup* group = subscriptions_.find_group(orphan.share);
    if (group == nullptr) return;  // it was the last member
    const Subscription& member = choose_member(*group, orphan.qos, orphan.bytes);
    Session& session = *member.session;
    Qos qos = std::min(orphan.qos, member.qos);
    if (qos == Qos::k0 && online(session) == nullptr) return;
    if (!make_room(session, qos, orphan.bytes)) return;
    Delivery delivery{.message = orphan.message,
                      .qos = qos,
                      .retain = member.retain_as_published && orphan.retain,
                      .published_qos = orphan.qos,
                      .published_retain = orphan.retain,
                      .identifiers = {},
                      .share = orphan.share,
                      .bytes = orphan.bytes,
                      .expires = orphan.expires};
    if (member.identifier != 0) delivery.identifiers.push_back(member.identifier);
    bool stored = is_stored(session, qos);
    if (orphan.stored.id != 0 && (stored || !orphan.message)) {
        delivery.stored = orphan.stored;
        delivery.sequence = session.window.take_sequence();
        if (qos == Qos::k2) delivery.batch = pending_.store_batch();
        put_delivery(session, delivery, DeliveryState::kQueued);
        note_reference(delivery.stored, session, delivery.sequence);
        wake_when_stored(session);
    } else if (stored) {
        save_delivery(session, delivery, nullptr);
    }
    push(session, std::move(delivery));
    pump(session);
}

}  // namespace pgmqtt::broker
