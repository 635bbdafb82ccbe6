// Reason codes of MQTT 5.0, section 2.4.
#pragma once

#include <cstdint>
#include <string_view>

namespace pgmqtt::mqtt {

enum class ReasonCode : uint8_t {
    kSuccess = 0x00,  // also Normal disconnection, Granted QoS 0
    kGrantedQos1 = 0x01,
    kGrantedQos2 = 0x02,
    kDisconnectWithWill = 0x04,
    kNoMatchingSubscribers = 0x10,
    kNoSubscriptionExisted = 0x11,
    kContinueAuthentication = 0x18,
    kReauthenticate = 0x19,
    kUnspecifiedError = 0x80,
    kMalformedPacket = 0x81,
    kProtocolError = 0x82,
    kImplementationSpecificError = 0x83,
    kUnsupportedProtocolVersion = 0x84,
    kClientIdentifierNotValid = 0x85,
    kBadUserNameOrPassword = 0x86,
    kNotAuthorized = 0x87,
    kServerUnavailable = 0x88,
    kServerBusy = 0x89,
    kBanned = 0x8A,
    kServerShuttingDown = 0x8B,
    kBadAuthenticationMethod = 0x8C,
    kKeepAliveTimeout = 0x8D,
    kSessionTakenOver = 0x8E,
    kTopicFilterInvalid = 0x8F,
    kTopicNameInvalid = 0x90,
    kPacketIdentifierInUse = 0x91,
    kPacketIdentifierNotFound = 0x92,
    kReceiveMaximumExceeded = 0x93,
    kTopicAliasInvalid = 0x94,
    kPacketTooLarge = 0x95,
    kMessageRateTooHigh = 0x96,
    kQuotaExceeded = 0x97,
    kAdministrativeAction = 0x98,
    kPayloadFormatInvalid = 0x99,
    kRetainNotSupported = 0x9A,
    kQosNotSupported = 0x9B,
    kUseAnotherServer = 0x9C,
    kServerMoved = 0x9D,
    kSharedSubscriptionsNotSupported = 0x9E,
    kConnectionRateExceeded = 0x9F,
    kMaximumConnectTime = 0xA0,
    kSubscriptionIdentifiersNotSupported = 0xA1,
    kWildcardSubscriptionsNotSupported = 0xA2,
};

// The specification's name, for logs: "Malformed Packet".
std::string_view name(ReasonCode code);

inline bool is_error(ReasonCode code) {
    return static_cast<uint8_t>(code) >= 0x80;
}

}  // namespace pgmqtt::mqtt
