// The packets of MQTT 3.1, 3.1.1 and 5.0 as values. Strings and payloads are views: into the input
// buffer after decoding, into whatever the caller owns before encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "mqtt/reason.h"

namespace pgmqtt::mqtt {

using base::ByteView;

// The protocol level byte of CONNECT. 3.1 and 3.1.1 share every packet but CONNECT and SUBACK 0x80.
enum class Version : uint8_t { k31 = 3, k311 = 4, k5 = 5 };

enum class PacketType : uint8_t {
    kConnect = 1,
    kConnack,
    kPublish,
    kPuback,
    kPubrec,
    kPubrel,
    kPubcomp,
    kSubscribe,
    kSuback,
    kUnsubscribe,
    kUnsuback,
    kPingreq,
    kPingresp,
    kDisconnect,
    kAuth,
};

enum class Qos : uint8_t { k0 = 0, k1 = 1, k2 = 2 };

// Identifiers of section 2.2.2.2 of MQTT 5.0.
enum class PropertyId : uint8_t {
    kPayloadFormatIndicator = 0x01,
    kMessageExpiryInterval = 0x02,
    kContentType = 0x03,
    kResponseTopic = 0x08,
    kCorrelationData = 0x09,
    kSubscriptionIdentifier = 0x0B,
    kSessionExpiryInterval = 0x11,
    kAssignedClientIdentifier = 0x12,
    kServerKeepAlive = 0x13,
    kAuthenticationMethod = 0x15,
    kAuthenticationData = 0x16,
    kRequestProblemInformation = 0x17,
    kWillDelayInterval = 0x18,
    kRequestResponseInformation = 0x19,
    kResponseInformation = 0x1A,
    kServerReference = 0x1C,
    kReasonString = 0x1F,
    kReceiveMaximum = 0x21,
    kTopicAliasMaximum = 0x22,
    kTopicAlias = 0x23,
    kMaximumQos = 0x24,
    kRetainAvailable = 0x25,
    kUserProperty = 0x26,
    kMaximumPacketSize = 0x27,
    kWildcardSubscriptionAvailable = 0x28,
    kSubscriptionIdentifierAvailable = 0x29,
    kSharedSubscriptionAvailable = 0x2A,
};

using UserProperty = std::pair<ByteView, ByteView>;

// Every property of MQTT 5.0. Which may stand in which packet is the codec's table; a property
// that is absent here is absent on the wire. Intervals are in seconds.
struct Properties {
    std::optional<uint8_t> payload_format_indicator;
    std::optional<uint32_t> message_expiry_interval;
    std::optional<ByteView> content_type;
    std::optional<ByteView> response_topic;
    std::optional<ByteView> correlation_data;
    std::vector<uint32_t> subscription_identifiers;  // one in SUBSCRIBE, any number in PUBLISH
    std::optional<uint32_t> session_expiry_interval;
    std::optional<ByteView> assigned_client_identifier;
    std::optional<uint16_t> server_keep_alive;
    std::optional<ByteView> authentication_method;
    std::optional<ByteView> authentication_data;
    std::optional<uint8_t> request_problem_information;
    std::optional<uint32_t> will_delay_interval;
    std::optional<uint8_t> request_response_information;
    std::optional<ByteView> response_information;
    std::optional<ByteView> server_reference;
    std::optional<ByteView> reason_string;
    std::optional<uint16_t> receive_maximum;
    std::optional<uint16_t> topic_alias_maximum;
    std::optional<uint16_t> topic_alias;
    std::optional<uint8_t> maximum_qos;
    std::optional<uint8_t> retain_available;
    std::vector<UserProperty> user_properties;  // in wire order, duplicates kept
    std::optional<uint32_t> maximum_packet_size;
    std::optional<uint8_t> wildcard_subscription_available;
    std::optional<uint8_t> subscription_identifier_available;
    std::optional<uint8_t> shared_subscription_available;

    // Nothing is present afterwards; the vectors keep their capacity.
    void clear();

    bool operator==(const Properties&) const = default;
};

struct Will {
    ByteView topic;
    ByteView payload;
    Qos qos = Qos::k0;
    bool retain = false;
    Properties properties;

    bool operator==(const Will&) const = default;
};

struct Connect {
    Version version = Version::k5;
    // Bit 7 of the level: a mosquitto bridge announces itself with 0x83 or 0x84. Not in the
    // standard, which knows no such level [MQTT-3.1.2-2]: whether to accept it is the broker's
    // decision, a refusal is CONNACK 0x01, upon which the bridge comes back without the bit.
    bool bridge = false;
    bool clean_start = true;
    uint16_t keep_alive = 0;  // seconds, 0 = none
    ByteView client_id;
    std::optional<ByteView> username;
    std::optional<ByteView> password;
    std::optional<Will> will;
    Properties properties;

    bool operator==(const Connect&) const = default;
};

struct Connack {
    bool session_present = false;
    // 5.0: the reason code. 3.1 and 3.1.1: a return code 0..5 of section 3.2.2.3.
    uint8_t code = 0;
    Properties properties;

    bool operator==(const Connack&) const = default;
};

struct Publish {
    ByteView topic;  // empty with a topic alias
    ByteView payload;
    Qos qos = Qos::k0;
    bool retain = false;
    bool dup = false;
    uint16_t packet_id = 0;  // 0 with QoS 0
    Properties properties;

    bool operator==(const Publish&) const = default;
};

// PUBACK, PUBREC, PUBREL and PUBCOMP have the same body.
template <PacketType kType>
struct Acknowledgement {
    uint16_t packet_id = 0;
    ReasonCode reason = ReasonCode::kSuccess;
    Properties properties;

    bool operator==(const Acknowledgement&) const = default;
};
using Puback = Acknowledgement<PacketType::kPuback>;
using Pubrec = Acknowledgement<PacketType::kPubrec>;
using Pubrel = Acknowledgement<PacketType::kPubrel>;
using Pubcomp = Acknowledgement<PacketType::kPubcomp>;

struct Subscription {
    ByteView filter;
    Qos qos = Qos::k0;
    bool no_local = false;
    bool retain_as_published = false;
    uint8_t retain_handling = 0;  // 0 send, 1 send if new, 2 do not send

    bool operator==(const Subscription&) const = default;
};

struct Subscribe {
    uint16_t packet_id = 0;
    std::vector<Subscription> subscriptions;  // at least one
    Properties properties;

    bool operator==(const Subscribe&) const = default;
};

struct Suback {
    uint16_t packet_id = 0;
    std::vector<uint8_t> codes;  // 5.0: reason codes; 3.x: granted QoS or 0x80
    Properties properties;

    bool operator==(const Suback&) const = default;
};

struct Unsubscribe {
    uint16_t packet_id = 0;
    std::vector<ByteView> filters;  // at least one
    Properties properties;

    bool operator==(const Unsubscribe&) const = default;
};

struct Unsuback {
    uint16_t packet_id = 0;
    std::vector<uint8_t> codes;  // 5.0 only
    Properties properties;

    bool operator==(const Unsuback&) const = default;
};

struct Pingreq {
    bool operator==(const Pingreq&) const = default;
};

struct Pingresp {
    bool operator==(const Pingresp&) const = default;
};

struct Disconnect {
    ReasonCode reason = ReasonCode::kSuccess;
    Properties properties;

    bool operator==(const Disconnect&) const = default;
};

struct Auth {  // 5.0 only
    ReasonCode reason = ReasonCode::kSuccess;
    Properties properties;

    bool operator==(const Auth&) const = default;
};

// In the order of PacketType, so that index() + 1 is the type.
using Packet = std::variant<Connect, Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe,
                            Suback, Unsubscribe, Unsuback, Pingreq, Pingresp, Disconnect, Auth>;

}  // namespace pgmqtt::mqtt
