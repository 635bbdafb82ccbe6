#include "loadtest/refusal.h"

#include "mqtt/reason.h"

namespace pgmqtt::loadtest {
namespace {

using mqtt::ReasonCode;

// MQTT 3.1.1, table 3.1, in the reason codes of 5.0.
ReasonCode reason_of(int protocol, unsigned code) {
    if (protocol >= 5) return static_cast<ReasonCode>(code);
    switch (code) {
        case 1:
            return ReasonCode::kUnsupportedProtocolVersion;
        case 2:
            return ReasonCode::kClientIdentifierNotValid;
        case 3:
            return ReasonCode::kServerUnavailable;
        case 4:
            return ReasonCode::kBadUserNameOrPassword;
        case 5:
            return ReasonCode::kNotAuthorized;
        default:
            return ReasonCode::kUnspecifiedError;
    }
}

const char* advice_for(ReasonCode reason) {
    switch (reason) {
        case ReasonCode::kBadUserNameOrPassword:
            return "check --username and --password";
        case ReasonCode::kNotAuthorized:
            return "give --username and --password of somebody who may connect, or look at the "
                   "broker's rules for its clients";
        case ReasonCode::kUnsupportedProtocolVersion:
            return "give another --protocol";
        case ReasonCode::kClientIdentifierNotValid:
            return "give another --client-prefix";
        case ReasonCode::kServerUnavailable:
        case ReasonCode::kServerBusy:
        case ReasonCode::kQuotaExceeded:
        case ReasonCode::kConnectionRateExceeded:
            return "look at the broker's limits on connections, and at its log";
        default:
            return "look at the broker's log";
    }
}

}  // namespace

std::string connack_refusal(int protocol, unsigned code) {
    ReasonCode reason = reason_of(protocol, code);
    return "CONNACK refuses: " + std::string(mqtt::name(reason)) + " (" + std::to_string(code) +
           "); " + advice_for(reason);
}

std::string no_connection(const std::string& why) {
    return why + "; is the broker there? Check --host and --port, and look at its log";
}

}  // namespace pgmqtt::loadtest
