// What a Client of the fixture does: the definitions that need the whole of BrokerTest.
#pragma once

#include "broker_fixture.h"

namespace pgmqtt::broker {

inline void Client::send(const mqtt::Packet& packet) {
    std::string bytes;
    mqtt::encode(packet, version_, bytes);
    send_bytes(bytes);
}

inline void Client::send_bytes(ByteView bytes) {
    unsent_.append(bytes);
    offer();
    test_.run();
}

// What it shows can be kept, whatever part of it is.
struct KeptShowing final : base::Input {
    explicit KeptShowing(ByteView shown)
        : bytes(std::make_shared<std::vector<char>>(shown.begin(), shown.end())) {}
    void expect(size_t size) override { expected = size; }
    base::KeptInput keep(size_t) override { return {bytes, bytes->size()}; }

    std::shared_ptr<std::vector<char>> bytes;
    size_t expected = 0;
};

inline void Client::offer() {
    if (closed_ || unsent_.empty()) return;
    // A copy on the heap of exactly this size: the sanitizer sees every read past the end, and of
    // what should have been kept and was not.
    KeptShowing input(unsent_);
    size_t consumed = test_.broker_->received(id_, {input.bytes->data(), input.bytes->size()},
                                              test_.now_, &input);
    expected_ = input.expected;
    ASSERT_LE(consumed, unsent_.size());
    unsent_.erase(0, consumed);
}

inline void Client::drop() {
    closed_ = true;
    test_.broker_->disconnected(id_, test_.now_);
    test_.run();
}

inline void Client::stall(bool stalled) {
    stalled_ = stalled;
    collect();
    test_.run();
}

// False: nothing came.
inline bool Client::take_some() {
    base::Outbox* outbox = test_.broker_->outbox(id_);
    if (stalled_ || outbox == nullptr || outbox->empty()) return false;
    iovec vectors[4];
    size_t count = outbox->gather(vectors, 4);
    size_t size = 0;
    for (size_t i = 0; i < count; ++i) {
        input_.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
        size += vectors[i].iov_len;
    }
    outbox->consume(size);
    return true;
}

inline void BrokerTest::flush(ConnectionId id) {
    ++flushes_;
    while (client(id).take_some()) {
    }
}

inline void Client::collect() {
    while (take_some()) test_.broker_->drained(id_, test_.now_);
    mqtt::Frame frame;
    size_t taken = 0;
    while (true) {
        ByteView rest = ByteView(input_).substr(taken);
        auto state = mqtt::next_frame(rest, mqtt::kMaxPacketSize, frame);
        ASSERT_TRUE(state.ok());
        if (*state == mqtt::FrameState::kIncomplete) break;
        Received received;
        received.bytes = std::make_shared<const std::string>(rest.substr(0, frame.size));
        ASSERT_TRUE(mqtt::next_frame(*received.bytes, mqtt::kMaxPacketSize, frame).ok());
        auto status = mqtt::decode(frame, version_, mqtt::Sender::kServer, received.packet);
        ASSERT_TRUE(status.ok()) << status.error().detail;
        taken += received.bytes->size();
        inbox_.push_back(std::move(received));
    }
    input_.erase(0, taken);
}

inline std::vector<std::string> Client::payloads() {
    std::vector<std::string> found;
    while (!inbox_.empty()) {
        auto publish = next<mqtt::Publish>();
        found.emplace_back(publish.payload);
        if (publish.qos == Qos::k1) puback(publish.packet_id);
        if (publish.qos == Qos::k2) complete(publish.packet_id);
    }
    return found;
}

inline uint8_t Client::subscribe(ByteView filter, Qos qos, mqtt::Subscription options,
                                 uint32_t identifier) {
    mqtt::Subscribe subscribe;
    subscribe.packet_id = next_packet_id();
    options.filter = filter;
    options.qos = qos;
    subscribe.subscriptions.push_back(options);
    if (identifier != 0) subscribe.properties.subscription_identifiers.push_back(identifier);
    send(subscribe);
    auto suback = next<mqtt::Suback>();
    EXPECT_EQ(suback.packet_id, last_packet_id_);
    EXPECT_EQ(suback.codes.size(), 1u);
    return suback.codes.empty() ? uint8_t{0xFF} : suback.codes[0];
}

inline uint8_t Client::unsubscribe(ByteView filter) {
    mqtt::Unsubscribe unsubscribe;
    unsubscribe.packet_id = next_packet_id();
    unsubscribe.filters.push_back(filter);
    send(unsubscribe);
    auto unsuback = next<mqtt::Unsuback>();
    EXPECT_EQ(unsuback.packet_id, last_packet_id_);
    return unsuback.codes.empty() ? uint8_t{0} : unsuback.codes[0];
}

inline void Client::publish(ByteView topic, ByteView payload, Qos qos, bool retain,
                            const mqtt::Properties& properties) {
    mqtt::Publish publish;
    publish.topic = topic;
    publish.payload = payload;
    publish.qos = qos;
    publish.retain = retain;
    if (qos != Qos::k0) publish.packet_id = next_packet_id();
    publish.properties = properties;
    send(publish);
}

inline void Client::puback(uint16_t packet_id) {
    mqtt::Puback puback;
    puback.packet_id = packet_id;
    send(puback);
}

inline void Client::publish_as(uint16_t packet_id, ByteView topic, ByteView payload, Qos qos,
                               bool dup, std::optional<uint32_t> expiry) {
    mqtt::Publish publish;
    publish.properties.message_expiry_interval = expiry;
    publish.topic = topic;
    publish.payload = payload;
    publish.qos = qos;
    publish.dup = dup;
    publish.packet_id = packet_id;
    send(publish);
}

inline void Client::pubrec(uint16_t packet_id, ReasonCode reason) {
    mqtt::Pubrec pubrec;
    pubrec.packet_id = packet_id;
    pubrec.reason = reason;
    send(pubrec);
}

inline void Client::pubrel(uint16_t packet_id) {
    mqtt::Pubrel pubrel;
    pubrel.packet_id = packet_id;
    send(pubrel);
}

inline void Client::pubcomp(uint16_t packet_id) {
    mqtt::Pubcomp pubcomp;
    pubcomp.packet_id = packet_id;
    send(pubcomp);
}

inline void Client::publish_exactly_once(ByteView topic, ByteView payload) {
    publish(topic, payload, Qos::k2);
    uint16_t packet_id = last_packet_id_;
    auto pubrec = next<mqtt::Pubrec>();
    EXPECT_EQ(pubrec.packet_id, packet_id);
    EXPECT_FALSE(is_error(pubrec.reason));
    pubrel(packet_id);
    auto pubcomp = next<mqtt::Pubcomp>();
    EXPECT_EQ(pubcomp.packet_id, packet_id);
    EXPECT_EQ(pubcomp.reason, ReasonCode::kSuccess);
}

// The PUBREL may stand behind PUBLISHes that came earlier.
inline void Client::complete(uint16_t packet_id) {
    pubrec(packet_id);
    for (auto received = inbox_.begin(); received != inbox_.end(); ++received) {
        auto* pubrel = std::get_if<mqtt::Pubrel>(&received->packet);
        if (pubrel == nullptr || pubrel->packet_id != packet_id) continue;
        EXPECT_EQ(pubrel->reason, ReasonCode::kSuccess);
        inbox_.erase(received);
        return pubcomp(packet_id);
    }
    ADD_FAILURE() << "no PUBREL";
}

}  // namespace pgmqtt::broker
