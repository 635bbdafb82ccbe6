// CONNECT and CONNACK, sections 3.1 and 3.2.
#include <algorithm>
#include <array>
#include <utility>

#include "broker/log_text.h"
#include "broker/state.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

namespace {

// Return codes of 3.1 and 3.1.1, section 3.2.2.3.
enum ReturnCode : uint8_t {
    kUnacceptableProtocolVersion = 1,
    kIdentifierRejected = 2,
    kServerUnavailable = 3,
    kBadUserNameOrPassword = 4,
    kNotAuthorized = 5,
};

uint8_t connack_code(Version version, ReasonCode reason) {
    if (version == Version::k5) {
        return static_cast<uint8_t>(
            mqtt::is_allowed_reason(mqtt::PacketType::kConnack, reason, mqtt::Sender::kServer)
                ? reason
                : ReasonCode::kUnspecifiedError);
    }
    switch (reason) {
        case ReasonCode::kUnsupportedProtocolVersion:
            return kUnacceptableProtocolVersion;
        case ReasonCode::kClientIdentifierNotValid:
            return kIdentifierRejected;
        case ReasonCode::kBadUserNameOrPassword:
        case ReasonCode::kBadAuthenticationMethod:
            return kBadUserNameOrPassword;
        case ReasonCode::kNotAuthorized:
        case ReasonCode::kBanned:
        case ReasonCode::kTopicNameInvalid:
            return kNotAuthorized;
        default:
            return kServerUnavailable;
    }
}

// A mosquitto bridge announces its state here, and must be able to connect although clients do not
// publish to `$...`: its will is dropped when it fires.
constexpr ByteView kBridgeState = "$SYS/broker/connection/";

struct Refusal {
    ReasonCode reason = ReasonCode::kSuccess;
    const char* detail = "";
};

// What makes a well-formed CONNECT unacceptable whoever sent it.
Refusal judge(const mqtt::Connect& connect) {
    // A bridge tries level 0x84 first and goes on without the bit when told so.
    if (connect.bridge) {
        return {ReasonCode::kUnsupportedProtocolVersion, "bridge bit in the protocol level"};
    }
    if (connect.properties.authentication_method) {  // [MQTT-4.12.0-1]
        return {ReasonCode::kBadAuthenticationMethod, "authentication method is not supported"};
    }
    if (connect.client_id.empty()) {
        // 3.1 wants one always; 3.1.1 unless the session is clean [MQTT-3.1.3-8].
        bool needs_id = connect.version == Version::k31 ||
                        (connect.version == Version::k311 && !connect.clean_start);
        if (needs_id) return {ReasonCode::kClientIdentifierNotValid, "client identifier is empty"};
    }
    if (connect.will) {
        if (mqtt::begins_with_dollar(connect.will->topic) &&
            !connect.will->topic.starts_with(kBridgeState)) {
            return {ReasonCode::kTopicNameInvalid, "will topic begins with $"};
        }
    }
    return {};
}

}  // namespace

void Broker::State::handle_connect(Connection& c, const mqtt::Frame& frame, ByteView packet) {
    auto connect = mqtt::decode_connect(frame);
    if (!connect.ok()) return refuse_malformed_connect(c, connect.error());
    c.version = connect->version;
    if (auto maximum = connect->properties.maximum_packet_size) c.maximum_packet_size = *maximum;
    Refusal refusal = judge(*connect);
    if (refusal.reason != ReasonCode::kSuccess) {
        return refuse_connect(c, refusal.reason, refusal.detail);
    }

    AuthRequest request{.connection = c.id,
                        .peer = c.peer,
                        .client_id = std::string(connect->client_id),
                        .has_username = connect->username.has_value(),
                        .username = std::string(connect->username.value_or("")),
                        .has_password = connect->password.has_value(),
                        .password = std::string(connect->password.value_or(""))};
    turn_.authenticate.push_back(std::move(request));
    // The packet itself is kept, and decoded again with the answer: cheaper than a second type that
    // owns all its strings.
    c.connect_packet = packet;
    c.phase = Phase::kAuthenticating;
    pause(c, kPausedForAuthentication);
}

void Broker::State::refuse_malformed_connect(Connection& c, const mqtt::DecodeError& error) {
    constexpr uint8_t kLevel5 = 5;
    constexpr uint8_t kBridgeBit = 0x80;
    if (error.reason == ReasonCode::kUnsupportedProtocolVersion) {
        // [MQTT-3.1.2-2] [MQTT-3.1.2-1]; a level of the future is answered in the latest format we
        // know.
        bool newer = error.protocol_level > kLevel5 && error.protocol_level < kBridgeBit;
        c.version = newer ? Version::k5 : Version::k311;
        return refuse_connect(c, error.reason, error.detail);
    }
    ++counters_.malformed;
    if (error.protocol_level == kLevel5) {
        c.version = Version::k5;
        return refuse_connect(c, error.reason, error.detail);
    }
    ++counters_.connects_refused;
    close(c, describe(c) + ": CONNECT refused: " + error.detail);
}

void Broker::State::refuse_connect(Connection& c, ReasonCode reason, const char* detail) {
    ++counters_.connects_refused;
    mqtt::Connack connack;
    connack.code = connack_code(c.version, reason);
    std::string text = describe(c) + ": CONNECT refused: ";
    text += *detail != '\0' ? ByteView(detail) : mqtt::name(reason);
    send(c, connack);
    if (c.phase != Phase::kClosing) close(c, std::move(text));
}

void Broker::State::authenticated(ConnectionId id, const AuthVerdict& verdict, Now now) {
    begin_input(now);
    Connection* c = find(id);
    if (c == nullptr || c->phase != Phase::kAuthenticating) return;
    if (verdict.reason != ReasonCode::kSuccess) {
        refuse_connect(*c, verdict.reason, "");
    } else {
        admit(*c, verdict.username);
    }
    settle(now);
}

void Broker::State::admit(Connection& c, const std::string& username) {
    std::string packet = std::exchange(c.connect_packet, {});
    mqtt::Frame frame;
    auto state = mqtt::next_frame(packet, mqtt::kMaxPacketSize, frame);
    auto connect = mqtt::decode_connect(frame);
    if (!state.ok() || !connect.ok()) return;  // it was good before
    if (waits_for_end(c, *connect, username)) {
        c.connect_packet = std::move(packet);
    } else {
        accept_connect(c, *connect, username);
    }
}

// A session that was there before ends now, unless the client goes on with it. A long one does not
// at once: then the CONNECT is looked at again when it has.
bool Broker::State::waits_for_end(Connection& c, const mqtt::Connect& connect,
                                  const std::string& username) {
    Session* session = find_session(connect.client_id);
    if (session == nullptr) return false;
    if (!is_over(*session)) {
        if (session->username != username) return false;  // is refused
        if (session->connection != nullptr) take_over(*session->connection, c);
        session = find_session(connect.client_id);  // it may have ended with its connection
        if (session == nullptr) return false;
    }
    if (is_over(*session)) {
        expire_session(*session);      // unless that is under way
    } else if (connect.clean_start) {  // [MQTT-3.1.2-4]
        end_early(*session);
    } else {
        return false;
    }
    session = find_session(connect.client_id);
    if (session == nullptr) return false;
    successors_[session->id].push_back({c.id, username});
    return true;
}

void Broker::State::accept_connect(Connection& c, const mqtt::Connect& connect,
                                   const std::string& username) {
    mqtt::Connack connack;
    std::string client_id(connect.client_id);
    if (client_id.empty()) {
        client_id = assign_client_id();  // [MQTT-3.1.3-6]
        connack.properties.assigned_client_identifier = client_id;
    }
    Session* session = find_session(client_id);
    if (session != nullptr && session->username != username) {
        return refuse_connect(c, ReasonCode::kNotAuthorized, "its session is of another role");
    }
    uint64_t cost = session == nullptr ? session_cost(client_id, username) : 0;
    MessagePtr will = connect.will ? will_message(c, *connect.will) : nullptr;
    if (will) cost += will->cost();
    if (cost > 0 && !has_room_for_state(cost)) {
        return refuse_connect(c, ReasonCode::kQuotaExceeded, "sessions take their half of memory");
    }
    connack.session_present = session != nullptr && c.version != Version::k31;  // [MQTT-3.2.2-3]
    agree_on_limits(c, connect, connack);
    uint32_t expiry = agree_on_expiry(connect, connack);
    if (session == nullptr) session = &begin_session(client_id, username, expiry);

    session->connection = &c;
    session->expiry_interval = expiry;
    session->disconnected_at = base::WallTime::max();
    session->will = std::move(will);  // [MQTT-3.1.3-9]
    session->will_due = base::kNever;
    session->will_delay = 0;
    if (session->will) {
        session->will->charge(state_bytes_);
        session->will_delay = connect.will->properties.will_delay_interval.value_or(0);
    }
    c.session = session;
    ++counters_.clients;
    counters_.clients_maximum = std::max(counters_.clients_maximum, counters_.clients);
    bytes_.clear();
    mqtt::encode(connack, c.version, bytes_);
    if (bytes_.size() > c.maximum_packet_size) {
        return disconnect_for(c, ReasonCode::kPacketTooLarge, "CONNACK is over its maximum");
    }
    c.connack = bytes_;
    // Also when it is only that the session before it must not come back [MQTT-3.1.2-4].
    uint64_t unstored_end = unstored_end_of(session->client_id);
    if (!session->persistent && unstored_end == 0) return open(c);
    c.phase = Phase::kStoring;
    StoreWait wait{.batch = unstored_end, .kind = StoreWait::Kind::kConnack, .connection = c.id};
    if (!session->persistent) return store_waits_.push_back(std::move(wait));
    save_session(*session);
    wait_for_store(std::move(wait));
    look_ahead(*session);
}

// CONNACK, and what the session has for the client.
void Broker::State::open(Connection& c) {
    c.outbox.tail().append(c.connack);
    sent(c, c.connack.size());
    std::string().swap(c.connack);
    ++counters_.connects;
    c.phase = Phase::kConnected;
    c.connected_at = now_.wall;
    c.last_input = now_.mono;
    arm(c);
    resume(c, kPausedForAuthentication);
    if (subscriptions_.has_first_level(kSysLevel)) hear_sys();  // its session may listen
    flush_releases(*c.session);
    if (c.phase == Phase::kConnected) pump(*c.session);
}

// The client that was there before [MQTT-3.1.4-3].
void Broker::State::take_over(Connection& old, const Connection& by) {
    ++counters_.takeovers;
    std::string text = describe(old) + ": its client identifier connected again from " +
                       by.peer.address + ":" + std::to_string(by.peer.port);
    send_disconnect(old, ReasonCode::kSessionTakenOver);
    leave(old, true);
    close(old, std::move(text));
}

void Broker::State::agree_on_limits(Connection& c, const mqtt::Connect& connect,
                                    mqtt::Connack& connack) {
    c.receive_quota = std::max<uint16_t>(config_.max_inflight, 1);
    c.packet_size_limit = config_.max_packet_size;
    uint32_t keep_alive = connect.keep_alive;
    if (connect.version == Version::k5) {
        const mqtt::Properties& asked = connect.properties;
        c.receive_maximum = asked.receive_maximum.value_or(65535);
        c.problem_information = asked.request_problem_information.value_or(1) != 0;
        c.alias_maximum = config_.topic_alias_maximum;
        c.outgoing_aliases.allow(asked.topic_alias_maximum.value_or(0));

        mqtt::Properties& told = connack.properties;
        if (c.receive_quota < 65535) told.receive_maximum = c.receive_quota;
        told.maximum_packet_size = std::min(c.packet_size_limit, mqtt::kMaxRemainingLength);
        if (c.alias_maximum > 0) told.topic_alias_maximum = c.alias_maximum;
        // 0 asks for no keep alive, which is more than any limit.
        bool above = keep_alive > config_.max_keep_alive ||
                     (keep_alive == 0 && config_.max_keep_alive < 65535);
        if (above) {
            keep_alive = config_.max_keep_alive;
            told.server_keep_alive = config_.max_keep_alive;  // [MQTT-3.2.2-21]
        }
    }
    c.patience = std::chrono::milliseconds(keep_alive * 1500);  // [MQTT-3.1.2-22]
    c.keep_alive = static_cast<uint16_t>(keep_alive);
    c.clean_start = connect.clean_start;
}

// How long the session may outlive its connection.
uint32_t Broker::State::agree_on_expiry(const mqtt::Connect& connect,
                                        mqtt::Connack& connack) const {
    if (connect.version != Version::k5) {
        return connect.clean_start ? 0 : config_.max_session_expiry;
    }
    uint32_t asked = connect.properties.session_expiry_interval.value_or(0);
    if (asked <= config_.max_session_expiry) return asked;
    connack.properties.session_expiry_interval = config_.max_session_expiry;
    return config_.max_session_expiry;
}

std::string Broker::State::assign_client_id() {
    std::string id;
    do {
        std::string counter;
        base::put_u64(counter, ++assigned_ids_);
        std::array<uint64_t, 2> words = {base::hash(counter, seed_), base::hash(counter, ~seed_)};
        id = "pgmqtt-";
        for (uint64_t word : words) {
            for (int shift = 60; shift >= 0; shift -= 4) {
                id += "0123456789abcdef"[word >> shift & 15];
            }
        }
    } while (sessions_.contains(id));
    return id;
}

}  // namespace pgmqtt::broker
