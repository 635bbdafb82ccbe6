#include "mqtt/properties.h"

#include <array>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

#include "mqtt/topic.h"

namespace pgmqtt::mqtt {
namespace {

using Places = uint32_t;

constexpr Places operator|(Place left, Place right) {
    return static_cast<Places>(left) | static_cast<Places>(right);
}
constexpr Places operator|(Places left, Place right) {
    return left | static_cast<Places>(right);
}
constexpr Places only(Place place) {
    return static_cast<Places>(place);
}
constexpr bool includes(Places places, Place place) {
    return (places & static_cast<Places>(place)) != 0;
}

constexpr Places kMessage = Place::kWill | Place::kPublish | Place::kStored;
constexpr Places kReasonBearing = Place::kConnack | Place::kAcknowledgement | Place::kSuback |
                                  Place::kUnsuback | Place::kDisconnect | Place::kAuth;
constexpr Places kEverywhere =
    kMessage | kReasonBearing | Place::kConnect | Place::kSubscribe | Place::kUnsubscribe;

// What the bytes are, as far as the type of the member does not say it, and which values are legal.
enum class Kind : uint8_t {
    kNumber,
    kNonZero,  // else Protocol Error
    kFlag,     // 0 or 1, else Protocol Error
    kAlias,    // not 0, else Topic Alias invalid
    kVariableInteger,
    kText,
    kTopicName,
    kBinary,
    kTextPair,
};

using Member =
    std::variant<std::optional<uint8_t> Properties::*, std::optional<uint16_t> Properties::*,
                 std::optional<uint32_t> Properties::*, std::optional<ByteView> Properties::*,
                 std::vector<uint32_t> Properties::*, std::vector<UserProperty> Properties::*>;

struct Rule {
    PropertyId id;
    Kind kind;
    Places places;
    Places repeats;  // where it may stand more than once
    Member member;
};

using P = Properties;
using Id = PropertyId;

// Table 2-4 of section 2.2.2.2, in the order of the identifiers.
constexpr Rule kRules[] = {
    {Id::kPayloadFormatIndicator, Kind::kFlag, kMessage, 0, &P::payload_format_indicator},
    {Id::kMessageExpiryInterval, Kind::kNumber, kMessage, 0, &P::message_expiry_interval},
    {Id::kContentType, Kind::kText, kMessage, 0, &P::content_type},
    {Id::kResponseTopic, Kind::kTopicName, kMessage, 0, &P::response_topic},
    {Id::kCorrelationData, Kind::kBinary, kMessage, 0, &P::correlation_data},
    {Id::kSubscriptionIdentifier, Kind::kVariableInteger, Place::kPublish | Place::kSubscribe,
     only(Place::kPublish), &P::subscription_identifiers},
    {Id::kSessionExpiryInterval, Kind::kNumber,
     Place::kConnect | Place::kConnack | Place::kDisconnect, 0, &P::session_expiry_interval},
    {Id::kAssignedClientIdentifier, Kind::kText, only(Place::kConnack), 0,
     &P::assigned_client_identifier},
    {Id::kServerKeepAlive, Kind::kNumber, only(Place::kConnack), 0, &P::server_keep_alive},
    {Id::kAuthenticationMethod, Kind::kText, Place::kConnect | Place::kConnack | Place::kAuth, 0,
     &P::authentication_method},
    {Id::kAuthenticationData, Kind::kBinary, Place::kConnect | Place::kConnack | Place::kAuth, 0,
     &P::authentication_data},
    {Id::kRequestProblemInformation, Kind::kFlag, only(Place::kConnect), 0,
     &P::request_problem_information},
    {Id::kWillDelayInterval, Kind::kNumber, only(Place::kWill), 0, &P::will_delay_interval},
    {Id::kRequestResponseInformation, Kind::kFlag, only(Place::kConnect), 0,
     &P::request_response_information},
    {Id::kResponseInformation, Kind::kText, only(Place::kConnack), 0, &P::response_information},
    {Id::kServerReference, Kind::kText, Place::kConnack | Place::kDisconnect, 0,
     &P::server_reference},
    {Id::kReasonString, Kind::kText, kReasonBearing, 0, &P::reason_string},
    {Id::kReceiveMaximum, Kind::kNonZero, Place::kConnect | Place::kConnack, 0,
     &P::receive_maximum},
    {Id::kTopicAliasMaximum, Kind::kNumber, Place::kConnect | Place::kConnack, 0,
     &P::topic_alias_maximum},
    {Id::kTopicAlias, Kind::kAlias, only(Place::kPublish), 0, &P::topic_alias},
    {Id::kMaximumQos, Kind::kFlag, only(Place::kConnack), 0, &P::maximum_qos},
    {Id::kRetainAvailable, Kind::kFlag, only(Place::kConnack), 0, &P::retain_available},
    {Id::kUserProperty, Kind::kTextPair, kEverywhere, kEverywhere, &P::user_properties},
    {Id::kMaximumPacketSize, Kind::kNonZero, Place::kConnect | Place::kConnack, 0,
     &P::maximum_packet_size},
    {Id::kWildcardSubscriptionAvailable, Kind::kFlag, only(Place::kConnack), 0,
     &P::wildcard_subscription_available},
    {Id::kSubscriptionIdentifierAvailable, Kind::kFlag, only(Place::kConnack), 0,
     &P::subscription_identifier_available},
    {Id::kSharedSubscriptionAvailable, Kind::kFlag, only(Place::kConnack), 0,
     &P::shared_subscription_available},
};

// Position in kRules + 1 for each identifier, 0 for those that do not exist.
constexpr auto kRuleOf = [] {
    std::array<uint8_t, 0x2B> index{};
    uint8_t position = 0;
    for (const Rule& rule : kRules) index[static_cast<size_t>(rule.id)] = ++position;
    return index;
}();

// --- bytes to values ---

void check_number(const Rule& rule, uint32_t value, wire::Reader& in) {
    if (rule.kind == Kind::kFlag && value > 1) in.protocol_error("property is neither 0 nor 1");
    if (value != 0) return;
    // 3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.8; [MQTT-3.3.2-8] for the alias.
    if (rule.kind == Kind::kNonZero) in.protocol_error("property is 0");
    if (rule.kind == Kind::kVariableInteger) in.protocol_error("subscription identifier is 0");
    if (rule.kind == Kind::kAlias) in.fail(ReasonCode::kTopicAliasInvalid, "topic alias is 0");
}

template <class T>
T read_number(const Rule& rule, wire::Reader& in) {
    T value;
    if constexpr (std::is_same_v<T, uint8_t>) {
        value = in.u8();
    } else if constexpr (std::is_same_v<T, uint16_t>) {
        value = in.u16();
    } else {
        value = rule.kind == Kind::kVariableInteger ? in.variable_integer() : in.u32();
    }
    if (in.ok()) check_number(rule, value, in);
    return value;
}

ByteView read_bytes(const Rule& rule, wire::Reader& in) {
    if (rule.kind == Kind::kBinary) return in.binary();
    ByteView text = in.text();
    // [MQTT-3.3.2-14], and a topic name has a byte at least [MQTT-4.7.3-1].
    if (rule.kind == Kind::kTopicName && in.ok() && !is_valid_topic_name(text))
        in.protocol_error("response topic is not a topic name");
    return text;
}

struct ReadValue {
    const Rule& rule;
    Place place;
    wire::Reader& in;
    Properties& out;

    template <class T>
    void operator()(std::optional<T> Properties::*member) const {
        if (out.*member) in.protocol_error("property stands twice");
        if constexpr (std::is_same_v<T, ByteView>) {
            out.*member = read_bytes(rule, in);
        } else {
            out.*member = read_number<T>(rule, in);
        }
    }
    void operator()(std::vector<uint32_t> Properties::*member) const {
        if (!(out.*member).empty() && !includes(rule.repeats, place))
            in.protocol_error("property stands twice");
        (out.*member).push_back(read_number<uint32_t>(rule, in));
    }
    void operator()(std::vector<UserProperty> Properties::*member) const {
        ByteView name = in.text();
        ByteView value = in.text();
        (out.*member).emplace_back(name, value);
    }
};

void decode_list(wire::Reader& in, Place place, Properties& properties) {
    while (in.ok() && in.remaining() > 0) {
        // A variable byte integer by 2.2.2.2, but no identifier has a second byte.
        uint8_t id = in.u8();
        size_t position = id < kRuleOf.size() ? kRuleOf[id] : 0;
        if (position == 0) return in.malformed("property identifier is unknown");
        const Rule& rule = kRules[position - 1];
        // "An identifier which is not valid for its packet type": malformed, section 2.2.2.2.
        if (!includes(rule.places, place)) return in.malformed("property may not stand here");
        std::visit(ReadValue{rule, place, in, properties}, rule.member);
    }
}

// --- values to bytes ---

template <class T, class Visit>
void for_each_value(const std::optional<T>& values, Visit visit) {
    if (values) visit(*values);
}

template <class T, class Visit>
void for_each_value(const std::vector<T>& values, Visit visit) {
    for (const T& value : values) visit(value);
}

template <size_t kIndex, class Visit>
void visit_rule(const Properties& properties, Place place, Visit visit) {
    constexpr const Rule& kRule = kRules[kIndex];
    constexpr auto kMember = std::get<kRule.member.index()>(kRule.member);
    if (!includes(kRule.places, place)) return;
    for_each_value(properties.*kMember, [&](const auto& value) { visit(kRule, value); });
}

// Calls visit(rule, value) for each property that is present and may stand in `place`. Unrolled:
// each delivery of a PUBLISH comes here, most often to find nothing, and a std::visit for each rule
// takes more than twice as long.
template <class Visit>
void for_each_present(const Properties& properties, Place place, Visit visit) {
    [&]<size_t... kIndexes>(std::index_sequence<kIndexes...>) {
        (visit_rule<kIndexes>(properties, place, visit), ...);
    }
    (std::make_index_sequence<std::size(kRules)>{});
}

struct AddSize {
    size_t& size;

    template <class T>
    void operator()(const Rule& rule, const T& value) const {
        size += 1;
        if constexpr (std::is_same_v<T, ByteView>) {
            size += 2 + value.size();
        } else if constexpr (std::is_same_v<T, UserProperty>) {
            size += 4 + value.first.size() + value.second.size();
        } else if constexpr (std::is_same_v<T, uint32_t>) {
            size += rule.kind == Kind::kVariableInteger ? wire::variable_integer_size(value) : 4;
        } else {
            size += sizeof(T);
        }
    }
};

struct WriteValue {
    std::string& out;

    template <class T>
    void operator()(const Rule& rule, const T& value) const {
        base::put_u8(out, static_cast<uint8_t>(rule.id));
        if constexpr (std::is_same_v<T, ByteView>) {
            base::put_prefixed16(out, value);
        } else if constexpr (std::is_same_v<T, UserProperty>) {
            base::put_prefixed16(out, value.first);
            base::put_prefixed16(out, value.second);
        } else if constexpr (std::is_same_v<T, uint32_t>) {
            if (rule.kind == Kind::kVariableInteger) {
                wire::put_variable_integer(out, value);
            } else {
                base::put_u32(out, value);
            }
        } else if constexpr (std::is_same_v<T, uint16_t>) {
            base::put_u16(out, value);
        } else {
            base::put_u8(out, value);
        }
    }
};

}  // namespace

void Properties::clear() {
    std::vector<uint32_t> identifiers = std::move(subscription_identifiers);
    std::vector<UserProperty> users = std::move(user_properties);
    identifiers.clear();
    users.clear();
    *this = Properties{};
    subscription_identifiers = std::move(identifiers);
    user_properties = std::move(users);
}

void decode_properties(wire::Reader& in, Place place, Properties& properties) {
    properties.clear();
    uint32_t length = in.variable_integer();
    if (length == 0) return;
    wire::Reader section(in.take(length));
    if (in.ok()) decode_list(section, place, properties);
    in.absorb(section);
}

size_t properties_size(const Properties& properties, Place place) {
    size_t size = 0;
    for_each_present(properties, place, AddSize{size});
    return size;
}

void encode_properties(const Properties& properties, Place place, std::string& out) {
    encode_properties(properties, place, properties_size(properties, place), out);
}

void encode_properties(const Properties& properties, Place place, size_t size, std::string& out) {
    wire::put_variable_integer(out, static_cast<uint32_t>(size));
    if (size > 0) for_each_present(properties, place, WriteValue{out});
}

void encode_message_properties(const Properties& properties, std::string& out) {
    for_each_present(properties, Place::kStored, WriteValue{out});
}

base::Status<DecodeError> decode_message_properties(ByteView bytes, Properties& properties) {
    properties.clear();
    wire::Reader in(bytes);
    decode_list(in, Place::kStored, properties);
    return in.status();
}

}  // namespace pgmqtt::mqtt
