#include "unit/mqtt/packet_generator.h"

namespace pgmqtt::mqtt {

ByteView PacketGenerator::text(size_t longest) {
    static constexpr const char* kPieces[] = {
        "a",      "B",      "7",      "/",       "$",          " ",         "\x01",
        "\u00e9", "\u20ac", "\ufeff", "\ud7ff",  "\uffff",     "+",         "#",
        "\u0080", "word",   "temp",   "\ue000x", "\U0001f600", "\U0010ffff"};
    std::string text;
    size_t length = below(static_cast<uint32_t>(longest) + 1);
    while (text.size() < length) text += kPieces[below(std::size(kPieces))];
    return keep(std::move(text));
}

ByteView PacketGenerator::binary(size_t longest) {
    std::string bytes(below(static_cast<uint32_t>(longest) + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return keep(std::move(bytes));
}

ByteView PacketGenerator::topic() {
    std::string name{text(60)};
    std::erase_if(name, [](char byte) { return byte == '+' || byte == '#'; });
    return keep(name.empty() ? "t" : std::move(name));
}

ByteView PacketGenerator::filter() {
    std::string filter = below(4) == 0 ? "$share/group/" : "";
    uint32_t levels = 1 + below(5);
    for (uint32_t i = 0; i < levels; ++i) filter.append(flip() ? "+" : topic()).append("/");
    if (flip()) filter += "#";
    return keep(std::move(filter));
}

uint32_t PacketGenerator::u32() {
    static constexpr uint32_t kEdges[] = {0, 1, 127, 128, 255, 256, 65535, 65536, UINT32_MAX};
    return flip() ? kEdges[below(std::size(kEdges))] : static_cast<uint32_t>(random_());
}

ReasonCode PacketGenerator::reason(PacketType type, Sender sender) {
    while (true) {
        ReasonCode code{static_cast<uint8_t>(below(256))};
        if (is_allowed_reason(type, code, sender)) return code;
    }
}

void PacketGenerator::user_properties(Properties& properties) {
    for (uint32_t i = below(4); i > 1; --i) {
        ByteView name = text();
        properties.user_properties.emplace_back(name, text());
    }
}

void PacketGenerator::reason_properties(Properties& properties) {
    maybe(properties.reason_string, [&] { return text(); });
    user_properties(properties);
}

void PacketGenerator::message_properties(Properties& properties) {
    maybe(properties.payload_format_indicator, [&] { return below(2); });
    maybe(properties.message_expiry_interval, [&] { return u32(); });
    maybe(properties.content_type, [&] { return text(); });
    maybe(properties.response_topic, [&] { return topic(); });
    maybe(properties.correlation_data, [&] { return binary(); });
    user_properties(properties);
}

Will PacketGenerator::will(Version version) {
    Will will;
    will.topic = topic();
    will.payload = binary();
    will.qos = qos();
    will.retain = flip();
    if (version == Version::k5) {
        message_properties(will.properties);
        maybe(will.properties.will_delay_interval, [&] { return u32(); });
    }
    return will;
}

Connect PacketGenerator::connect(Version version) {
    Connect connect;
    connect.version = version;
    connect.bridge = version != Version::k5 && below(8) == 0;
    connect.clean_start = flip();
    connect.keep_alive = u16();
    connect.client_id = text(40);
    if (flip()) connect.username = text();
    if (flip() && (connect.username || version == Version::k5)) connect.password = binary();
    if (flip()) connect.will = will(version);
    if (version != Version::k5) return connect;

    Properties& properties = connect.properties;
    maybe(properties.session_expiry_interval, [&] { return u32(); });
    maybe(properties.authentication_method, [&] { return text(); });
    if (properties.authentication_method)
        maybe(properties.authentication_data, [&] { return binary(); });
    maybe(properties.request_problem_information, [&] { return below(2); });
    maybe(properties.request_response_information, [&] { return below(2); });
    maybe(properties.receive_maximum, [&] { return u16() | 1; });
    maybe(properties.topic_alias_maximum, [&] { return u16(); });
    maybe(properties.maximum_packet_size, [&] { return u32() | 1; });
    user_properties(properties);
    return connect;
}

Connack PacketGenerator::connack(Version version) {
    Connack connack;
    if (version != Version::k5) {
        connack.code = static_cast<uint8_t>(below(6));
    } else {
        connack.code = static_cast<uint8_t>(reason(PacketType::kConnack, Sender::kServer));
    }
    connack.session_present = version != Version::k31 && connack.code == 0 && flip();
    if (version != Version::k5) return connack;

    Properties& properties = connack.properties;
    maybe(properties.session_expiry_interval, [&] { return u32(); });
    maybe(properties.assigned_client_identifier, [&] { return text(); });
    maybe(properties.server_keep_alive, [&] { return u16(); });
    maybe(properties.authentication_method, [&] { return text(); });
    maybe(properties.authentication_data, [&] { return binary(); });
    maybe(properties.response_information, [&] { return text(); });
    maybe(properties.server_reference, [&] { return text(); });
    maybe(properties.receive_maximum, [&] { return u16() | 1; });
    maybe(properties.topic_alias_maximum, [&] { return u16(); });
    maybe(properties.maximum_qos, [&] { return below(2); });
    maybe(properties.retain_available, [&] { return below(2); });
    maybe(properties.maximum_packet_size, [&] { return u32() | 1; });
    maybe(properties.wildcard_subscription_available, [&] { return below(2); });
    maybe(properties.subscription_identifier_available, [&] { return below(2); });
    maybe(properties.shared_subscription_available, [&] { return below(2); });
    reason_properties(properties);
    return connack;
}

Publish PacketGenerator::publish(Version version, Sender sender) {
    Publish publish;
    publish.topic = topic();
    publish.payload = binary(below(20) == 0 ? 20000 : 200);
    publish.qos = qos();
    publish.retain = flip();
    if (publish.qos != Qos::k0) {
        publish.dup = flip();
        publish.packet_id = packet_id();
    }
    if (version != Version::k5) return publish;

    message_properties(publish.properties);
    maybe(publish.properties.topic_alias, [&] { return u16() | 1; });
    if (publish.properties.topic_alias && flip()) publish.topic = {};
    if (sender == Sender::kServer) {
        for (uint32_t i = below(5); i > 2; --i)
            publish.properties.subscription_identifiers.push_back(1 + u32() % 268435455);
    }
    return publish;
}

template <PacketType kType>
Acknowledgement<kType> PacketGenerator::acknowledgement(Version version, Sender sender) {
    Acknowledgement<kType> acknowledgement;
    acknowledgement.packet_id = packet_id();
    if (version != Version::k5) return acknowledgement;
    acknowledgement.reason = reason(kType, sender);
    reason_properties(acknowledgement.properties);
    return acknowledgement;
}

Subscribe PacketGenerator::subscribe(Version version) {
    Subscribe subscribe;
    subscribe.packet_id = packet_id();
    for (uint32_t i = below(5); i < 5; ++i) {
        Subscription& subscription = subscribe.subscriptions.emplace_back();
        subscription.filter = filter();
        subscription.qos = qos();
        if (version != Version::k5) continue;
        subscription.no_local = flip() && subscription.filter.front() != '$';
        subscription.retain_as_published = flip();
        subscription.retain_handling = static_cast<uint8_t>(below(3));
    }
    if (version != Version::k5) return subscribe;
    if (flip()) subscribe.properties.subscription_identifiers = {1 + u32() % 268435455};
    user_properties(subscribe.properties);
    return subscribe;
}

Suback PacketGenerator::suback(Version version) {
    Suback suback;
    suback.packet_id = packet_id();
    for (uint32_t i = below(5); i < 5; ++i) {
        ReasonCode code = reason(PacketType::kSuback, Sender::kServer);
        if (version != Version::k5 && is_error(code))
            code = version == Version::k31 ? ReasonCode::kSuccess : ReasonCode::kUnspecifiedError;
        suback.codes.push_back(static_cast<uint8_t>(code));
    }
    if (version == Version::k5) reason_properties(suback.properties);
    return suback;
}

Unsubscribe PacketGenerator::unsubscribe(Version version) {
    Unsubscribe unsubscribe;
    unsubscribe.packet_id = packet_id();
    for (uint32_t i = below(5); i < 5; ++i) unsubscribe.filters.push_back(filter());
    if (version == Version::k5) user_properties(unsubscribe.properties);
    return unsubscribe;
}

Unsuback PacketGenerator::unsuback(Version version) {
    Unsuback unsuback;
    unsuback.packet_id = packet_id();
    if (version != Version::k5) return unsuback;
    for (uint32_t i = below(5); i < 5; ++i)
        unsuback.codes.push_back(
            static_cast<uint8_t>(reason(PacketType::kUnsuback, Sender::kServer)));
    reason_properties(unsuback.properties);
    return unsuback;
}

Disconnect PacketGenerator::disconnect(Version version, Sender sender) {
    Disconnect disconnect;
    if (version != Version::k5) return disconnect;
    disconnect.reason = reason(PacketType::kDisconnect, sender);
    if (sender == Sender::kClient)
        maybe(disconnect.properties.session_expiry_interval, [&] { return u32(); });
    maybe(disconnect.properties.server_reference, [&] { return text(); });
    reason_properties(disconnect.properties);
    return disconnect;
}

Auth PacketGenerator::auth(Sender sender) {
    Auth auth;
    auth.reason = reason(PacketType::kAuth, sender);
    if (auth.reason == ReasonCode::kSuccess && flip()) return auth;
    auth.properties.authentication_method = text();
    maybe(auth.properties.authentication_data, [&] { return binary(); });
    reason_properties(auth.properties);
    return auth;
}

bool PacketGenerator::exists(PacketType type, Version version, Sender sender) {
    switch (type) {
        case PacketType::kConnect:
        case PacketType::kSubscribe:
        case PacketType::kUnsubscribe:
        case PacketType::kPingreq:
            return sender == Sender::kClient;
        case PacketType::kConnack:
        case PacketType::kSuback:
        case PacketType::kUnsuback:
        case PacketType::kPingresp:
            return sender == Sender::kServer;
        case PacketType::kDisconnect:
            return sender == Sender::kClient || version == Version::k5;
        case PacketType::kAuth:
            return version == Version::k5;
        default:
            return true;
    }
}

Packet PacketGenerator::packet(Version version, Sender sender) {
    while (true) {
        PacketType type{static_cast<uint8_t>(1 + below(15))};
        if (exists(type, version, sender)) return packet(type, version, sender);
    }
}

Packet PacketGenerator::packet(PacketType type, Version version, Sender sender) {
    owned_.clear();
    switch (type) {
        case PacketType::kConnect:
            return connect(version);
        case PacketType::kConnack:
            return connack(version);
        case PacketType::kPublish:
            return publish(version, sender);
        case PacketType::kPuback:
            return acknowledgement<PacketType::kPuback>(version, sender);
        case PacketType::kPubrec:
            return acknowledgement<PacketType::kPubrec>(version, sender);
        case PacketType::kPubrel:
            return acknowledgement<PacketType::kPubrel>(version, sender);
        case PacketType::kPubcomp:
            return acknowledgement<PacketType::kPubcomp>(version, sender);
        case PacketType::kSubscribe:
            return subscribe(version);
        case PacketType::kSuback:
            return suback(version);
        case PacketType::kUnsubscribe:
            return unsubscribe(version);
        case PacketType::kUnsuback:
            return unsuback(version);
        case PacketType::kPingreq:
            return Pingreq{};
        case PacketType::kPingresp:
            return Pingresp{};
        case PacketType::kDisconnect:
            return disconnect(version, sender);
        case PacketType::kAuth:
            return auth(sender);
    }
    return Pingreq{};
}

}  // namespace pgmqtt::mqtt
