#include "mqtt/reason.h"

#include "mqtt/codec.h"

namespace pgmqtt::mqtt {
namespace {

using Packets = uint32_t;  // one bit for each packet type

constexpr Packets bit(PacketType type) {
    return 1U << static_cast<unsigned>(type);
}

constexpr Packets kConnack = bit(PacketType::kConnack);
constexpr Packets kPuback = bit(PacketType::kPuback) | bit(PacketType::kPubrec);
constexpr Packets kPubrel = bit(PacketType::kPubrel) | bit(PacketType::kPubcomp);
constexpr Packets kSuback = bit(PacketType::kSuback);
constexpr Packets kUnsuback = bit(PacketType::kUnsuback);
constexpr Packets kDisconnect = bit(PacketType::kDisconnect);
constexpr Packets kAuth = bit(PacketType::kAuth);

struct Row {
    ReasonCode code;
    std::string_view name;
    Packets from_server;
    Packets from_client;
};

// Section 2.4 for names and packets; the columns "sent by" of 3.14.2.1 and 3.15.2.1. Wider than
// these tables in two places: DISCONNECT 0x00 and 0x8C from a server stand in 2.4 only, and a
// client that acknowledges with 0x10, which a server alone should send, uses a listed code all the
// same [MQTT-3.4.2-1] and keeps its connection.
constexpr Row kRows[] = {
    {ReasonCode::kSuccess, "Success",
     kConnack | kPuback | kPubrel | kSuback | kUnsuback | kDisconnect | kAuth,
     kPuback | kPubrel | kDisconnect},
    {ReasonCode::kGrantedQos1, "Granted QoS 1", kSuback, 0},
    {ReasonCode::kGrantedQos2, "Granted QoS 2", kSuback, 0},
    {ReasonCode::kDisconnectWithWill, "Disconnect with Will Message", 0, kDisconnect},
    {ReasonCode::kNoMatchingSubscribers, "No matching subscribers", kPuback, kPuback},
    {ReasonCode::kNoSubscriptionExisted, "No subscription existed", kUnsuback, 0},
    {ReasonCode::kContinueAuthentication, "Continue authentication", kAuth, kAuth},
    {ReasonCode::kReauthenticate, "Re-authenticate", 0, kAuth},
    {ReasonCode::kUnspecifiedError, "Unspecified error",
     kConnack | kPuback | kSuback | kUnsuback | kDisconnect, kPuback | kDisconnect},
    {ReasonCode::kMalformedPacket, "Malformed Packet", kConnack | kDisconnect, kDisconnect},
    {ReasonCode::kProtocolError, "Protocol Error", kConnack | kDisconnect, kDisconnect},
    {ReasonCode::kImplementationSpecificError, "Implementation specific error",
     kConnack | kPuback | kSuback | kUnsuback | kDisconnect, kPuback | kDisconnect},
    {ReasonCode::kUnsupportedProtocolVersion, "Unsupported Protocol Version", kConnack, 0},
    {ReasonCode::kClientIdentifierNotValid, "Client Identifier not valid", kConnack, 0},
    {ReasonCode::kBadUserNameOrPassword, "Bad User Name or Password", kConnack, 0},
    {ReasonCode::kNotAuthorized, "Not authorized",
     kConnack | kPuback | kSuback | kUnsuback | kDisconnect, kPuback},
    {ReasonCode::kServerUnavailable, "Server unavailable", kConnack, 0},
    {ReasonCode::kServerBusy, "Server busy", kConnack | kDisconnect, 0},
    {ReasonCode::kBanned, "Banned", kConnack, 0},
    {ReasonCode::kServerShuttingDown, "Server shutting down", kDisconnect, 0},
    {ReasonCode::kBadAuthenticationMethod, "Bad authentication method", kConnack | kDisconnect, 0},
    {ReasonCode::kKeepAliveTimeout, "Keep Alive timeout", kDisconnect, 0},
    {ReasonCode::kSessionTakenOver, "Session taken over", kDisconnect, 0},
    {ReasonCode::kTopicFilterInvalid, "Topic Filter invalid", kSuback | kUnsuback | kDisconnect, 0},
    {ReasonCode::kTopicNameInvalid, "Topic Name invalid", kConnack | kPuback | kDisconnect,
     kPuback | kDisconnect},
    {ReasonCode::kPacketIdentifierInUse, "Packet Identifier in use", kPuback | kSuback | kUnsuback,
     kPuback},
    {ReasonCode::kPacketIdentifierNotFound, "Packet Identifier not found", kPubrel, kPubrel},
    {ReasonCode::kReceiveMaximumExceeded, "Receive Maximum exceeded", kDisconnect, kDisconnect},
    {ReasonCode::kTopicAliasInvalid, "Topic Alias invalid", kDisconnect, kDisconnect},
    {ReasonCode::kPacketTooLarge, "Packet too large", kConnack | kDisconnect, kDisconnect},
    {ReasonCode::kMessageRateTooHigh, "Message rate too high", kDisconnect, kDisconnect},
    {ReasonCode::kQuotaExceeded, "Quota exceeded", kConnack | kPuback | kSuback | kDisconnect,
     kPuback | kDisconnect},
    {ReasonCode::kAdministrativeAction, "Administrative action", kDisconnect, kDisconnect},
    {ReasonCode::kPayloadFormatInvalid, "Payload format invalid", kConnack | kPuback | kDisconnect,
     kPuback | kDisconnect},
    {ReasonCode::kRetainNotSupported, "Retain not supported", kConnack | kDisconnect, 0},
    {ReasonCode::kQosNotSupported, "QoS not supported", kConnack | kDisconnect, 0},
    {ReasonCode::kUseAnotherServer, "Use another server", kConnack | kDisconnect, 0},
    {ReasonCode::kServerMoved, "Server moved", kConnack | kDisconnect, 0},
    {ReasonCode::kSharedSubscriptionsNotSupported, "Shared Subscriptions not supported",
     kSuback | kDisconnect, 0},
    {ReasonCode::kConnectionRateExceeded, "Connection rate exceeded", kConnack | kDisconnect, 0},
    {ReasonCode::kMaximumConnectTime, "Maximum connect time", kDisconnect, 0},
    {ReasonCode::kSubscriptionIdentifiersNotSupported, "Subscription Identifiers not supported",
     kSuback | kDisconnect, 0},
    {ReasonCode::kWildcardSubscriptionsNotSupported, "Wildcard Subscriptions not supported",
     kSuback | kDisconnect, 0},
};

const Row* find(ReasonCode code) {
    for (const Row& row : kRows) {
        if (row.code == code) return &row;
    }
    return nullptr;
}

}  // namespace

std::string_view name(ReasonCode code) {
    const Row* row = find(code);
    return row != nullptr ? row->name : "Unknown reason code";
}

bool is_allowed_reason(PacketType type, ReasonCode code, Sender sender) {
    const Row* row = find(code);
    if (row == nullptr) return false;
    return ((sender == Sender::kServer ? row->from_server : row->from_client) & bit(type)) != 0;
}

}  // namespace pgmqtt::mqtt
