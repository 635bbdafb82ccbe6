// SUBSCRIBE and SUBACK, sections 3.8 and 3.9.
#include "mqtt/packets.h"
#include "mqtt/properties.h"
#include "mqtt/topic.h"
#include "mqtt/wire.h"

namespace pgmqtt::mqtt {
namespace {

// Subscription options, section 3.8.3.1.
constexpr uint8_t kQosMask = 0x03;
constexpr uint8_t kNoLocalFlag = 0x04;
constexpr uint8_t kRetainAsPublishedFlag = 0x08;
constexpr unsigned kRetainHandlingShift = 4;
constexpr uint8_t kReservedBits = 0xC0;
constexpr uint8_t kReservedBits3 = 0xFC;  // 3.1 and 3.1.1 know the QoS only

constexpr uint8_t kFailure = 0x80;  // SUBACK of 3.1.1

void check_filter(ByteView filter, Version version, wire::Reader& in) {
    // 3.1.1 knows no shared subscriptions: `$share/...` is a filter like any other to the codec.
    bool valid = version == Version::k5 && is_shared_filter(filter) ? is_valid_shared_filter(filter)
                                                                    : is_valid_topic_filter(filter);
    if (!valid) in.fail(ReasonCode::kTopicFilterInvalid, "topic filter is invalid");
}

void decode_options(wire::Reader& in, Version version, Subscription& subscription) {
    uint8_t options = in.u8();
    // [MQTT-3.8.3-5] [MQTT-3.8.3-4]
    if (options & (version == Version::k5 ? kReservedBits : kReservedBits3))
        in.malformed("reserved subscription option bits are set");
    if ((options & kQosMask) == 3) in.protocol_error("QoS is 3");
    subscription.qos = static_cast<Qos>(options & kQosMask);
    subscription.no_local = (options & kNoLocalFlag) != 0;
    subscription.retain_as_published = (options & kRetainAsPublishedFlag) != 0;
    subscription.retain_handling = static_cast<uint8_t>(options >> kRetainHandlingShift & 3);
    if (subscription.retain_handling == 3) in.protocol_error("retain handling is 3");
    if (subscription.no_local && is_shared_filter(subscription.filter))  // [MQTT-3.8.3-4]
        in.protocol_error("no local on a shared subscription");
}

uint8_t options_of(const Subscription& subscription, Version version) {
    unsigned options = static_cast<unsigned>(subscription.qos);
    if (version == Version::k5) {
        if (subscription.no_local) options |= kNoLocalFlag;
        if (subscription.retain_as_published) options |= kRetainAsPublishedFlag;
        options |= static_cast<unsigned>(subscription.retain_handling) << kRetainHandlingShift;
    }
    return static_cast<uint8_t>(options);
}

bool is_listed_code(uint8_t code, Version version) {
    if (version == Version::k5)  // [MQTT-3.9.3-2]
        return is_allowed_reason(PacketType::kSuback, ReasonCode{code}, Sender::kServer);
    return code <= 2 || (code == kFailure && version == Version::k311);
}

}  // namespace

DecodeStatus decode_subscribe(ByteView body, Version version, Subscribe& subscribe) {
    wire::Reader in(body);
    subscribe.packet_id = in.packet_id();
    subscribe.properties.clear();
    if (version == Version::k5) decode_properties(in, Place::kSubscribe, subscribe.properties);
    subscribe.subscriptions.clear();
    // [MQTT-3.8.3-2]
    if (in.ok() && in.remaining() == 0) in.protocol_error("SUBSCRIBE without a filter");
    while (in.ok() && in.remaining() > 0) {
        Subscription& subscription = subscribe.subscriptions.emplace_back();
        subscription.filter = in.text();
        if (in.ok()) check_filter(subscription.filter, version, in);
        decode_options(in, version, subscription);
    }
    return in.status();
}

void encode(const Subscribe& subscribe, Version version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kSubscribe, 2);
    base::put_u16(out, subscribe.packet_id);
    if (version == Version::k5) encode_properties(subscribe.properties, Place::kSubscribe, out);
    for (const Subscription& subscription : subscribe.subscriptions) {
        base::put_prefixed16(out, subscription.filter);
        base::put_u8(out, options_of(subscription, version));
    }
}

DecodeStatus decode_suback(ByteView body, Version version, Suback& suback) {
    wire::Reader in(body);
    suback.packet_id = in.packet_id();
    suback.properties.clear();
    if (version == Version::k5) decode_properties(in, Place::kSuback, suback.properties);
    suback.codes.clear();
    if (in.ok() && in.remaining() == 0) in.protocol_error("SUBACK without a code");
    while (in.ok() && in.remaining() > 0) {
        suback.codes.push_back(in.u8());
        if (!is_listed_code(suback.codes.back(), version))
            in.protocol_error("code is not listed for SUBACK");
    }
    return in.status();
}

void encode(const Suback& suback, Version version, std::string& out) {
    wire::PacketWriter packet(out, PacketType::kSuback);
    base::put_u16(out, suback.packet_id);
    if (version == Version::k5) encode_properties(suback.properties, Place::kSuback, out);
    for (uint8_t code : suback.codes) base::put_u8(out, code);
}

}  // namespace pgmqtt::mqtt
