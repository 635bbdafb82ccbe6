// Packets into outboxes.
#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::send(Connection& c, const mqtt::Packet& packet) {
    bytes_.clear();
    mqtt::encode(packet, c.version, bytes_);
    if (bytes_.size() > c.maximum_packet_size) {
        // Nothing but a PUBLISH may be left out [MQTT-3.1.2-24]: the client asked for an answer
        // that it does not take.
        return disconnect_for(c, ReasonCode::kPacketTooLarge, "answer is over its maximum");
    }
    c.outbox.tail().append(bytes_);
    sent(c, bytes_.size());
}

void Broker::State::sent(Connection& c, size_t bytes) {
    ++counters_.packets_out;
    counters_.bytes_out += bytes;
    c.traffic.bytes_out += bytes;
    count_output(c);
    if (c.dirty) return;
    c.dirty = true;
    turn_.dirty.push_back(c.id);
}

void Broker::State::count_publish(Connection& c, size_t payload_bytes) {
    ++counters_.publishes_out;
    ++c.traffic.messages_out;
    counters_.publish_bytes_out += payload_bytes;
}

void Broker::State::count_dropped(Session& session, uint64_t& counter) {
    ++counter;
    ++session.dropped;
}

void Broker::State::pause(Connection& c, PauseReason reason) {
    if ((c.paused & reason) != 0) return;
    c.paused |= reason;
    bool is_publisher = reason == kPausedForAcknowledgements || reason == kPausedForPending ||
                        reason == kPausedForMemory;
    if (is_publisher) ++counters_.pauses;
    if (reason == kPausedForPending) paused_publishers_.push_back(c.id);
    if (reason == kPausedForMemory) paused_for_memory_.push_back(c.id);
}

void Broker::State::resume(Connection& c, PauseReason reason) {
    if ((c.paused & reason) == 0) return;
    c.paused = static_cast<uint8_t>(c.paused & ~reason);
    if (c.paused == 0 && c.phase != Phase::kClosing) turn_.resumed.push_back(c.id);
}

}  // namespace pgmqtt::broker
