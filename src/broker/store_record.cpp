#include "broker/store_record.h"

#include "broker/wall_time.h"

namespace pgmqtt::broker {
namespace {

void put_session(std::string& out, const StoredSession& session) {
    base::put_prefixed16(out, session.client_id);
    base::put_prefixed16(out, session.username);
    put_time(out, session.created_at);
    put_time(out, session.disconnected_at);
    base::put_u32(out, session.expiry_interval);
    put_message(out, session.will);
    base::put_u32(out, session.will_delay);
}

bool get_session(base::ByteReader& reader, StoredSession& session) {
    session.client_id = reader.prefixed16();
    session.username = reader.prefixed16();
    session.created_at = get_time(reader);
    session.disconnected_at = get_time(reader);
    session.expiry_interval = reader.u32();
    if (!get_message(reader, session.will)) return false;
    session.will_delay = reader.u32();
    return reader.ok();
}

void put_subscription(std::string& out, const StoredSubscription& subscription) {
    base::put_prefixed16(out, subscription.filter);
    base::put_u8(out, static_cast<uint8_t>(subscription.qos));
    base::put_u8(out, subscription.no_local ? 1 : 0);
    base::put_u8(out, subscription.retain_as_published ? 1 : 0);
    base::put_u8(out, subscription.retain_handling);
    base::put_u32(out, subscription.identifier);
}

bool get_subscription(base::ByteReader& reader, StoredSubscription& subscription) {
    subscription.filter = reader.prefixed16();
    uint8_t qos = reader.u8();
    uint8_t no_local = reader.u8();
    uint8_t retain_as_published = reader.u8();
    subscription.retain_handling = reader.u8();
    subscription.identifier = reader.u32();
    subscription.qos = static_cast<mqtt::Qos>(qos);
    subscription.no_local = no_local == 1;
    subscription.retain_as_published = retain_as_published == 1;
    return reader.ok() && qos <= 2 && no_local <= 1 && retain_as_published <= 1 &&
           subscription.retain_handling <= 2;
}

// Which log, and where in it.
void put_place(std::string& out, const StoreRecord& record) {
    put_durability(out, record.durability);
    base::put_u64(out, record.message_id);
}

bool get_place(base::ByteReader& reader, StoreRecord& record) {
    if (!get_durability(reader, record.durability)) return false;
    record.message_id = reader.u64();
    return reader.ok();
}

void put_delivery(std::string& out, const StoredDelivery& delivery) {
    base::put_u8(out, static_cast<uint8_t>(delivery.state));
    base::put_u8(out, delivery.sent ? 1 : 0);
    base::put_u8(out, static_cast<uint8_t>(delivery.qos));
    base::put_u8(out, delivery.retain ? 1 : 0);
    base::put_prefixed32(out, delivery.subscription_identifiers);
    base::put_u32(out, delivery.bytes);
    put_time(out, delivery.expires_at);
}

bool get_delivery(base::ByteReader& reader, StoredDelivery& delivery) {
    uint8_t state = reader.u8();
    uint8_t sent = reader.u8();
    uint8_t qos = reader.u8();
    uint8_t retain = reader.u8();
    delivery.subscription_identifiers = reader.prefixed32();
    delivery.bytes = reader.u32();
    delivery.expires_at = get_time(reader);
    delivery.state = static_cast<DeliveryState>(state);
    delivery.sent = sent == 1;
    delivery.qos = static_cast<mqtt::Qos>(qos);
    delivery.retain = retain == 1;
    return reader.ok() && state >= 1 && state <= 2 && sent <= 1 && qos <= 2 && retain <= 1;
}

}  // namespace

void put_durability(std::string& out, Durability durability) {
    base::put_u8(out, static_cast<uint8_t>(durability));
}

bool get_durability(base::ByteReader& reader, Durability& durability) {
    uint8_t value = reader.u8();
    durability = static_cast<Durability>(value);
    return reader.ok() && value >= 1 && value <= 3;
}

void put_store_record(std::string& out, const StoreRecord& record) {
    base::put_u8(out, static_cast<uint8_t>(record.kind));
    switch (record.kind) {
        case StoreKind::kRetain:
            base::put_u8(out, record.replaces ? 1 : 0);
            return put_message(out, record.message);
        case StoreKind::kUnretain:
            return base::put_prefixed16(out, record.message.topic);
        case StoreKind::kSession:
            base::put_u64(out, record.session_id);
            return put_session(out, record.session);
        case StoreKind::kSessionEnd:
            return base::put_u64(out, record.session_id);
        case StoreKind::kSubscribe:
            base::put_u64(out, record.session_id);
            return put_subscription(out, record.subscription);
        case StoreKind::kUnsubscribe:
            base::put_u64(out, record.session_id);
            return base::put_prefixed16(out, record.subscription.filter);
        case StoreKind::kMessage:
            put_place(out, record);
            return put_message(out, record.message);
        case StoreKind::kCopy:
            put_place(out, record);
            return base::put_u64(out, record.source_id);
        case StoreKind::kDelivery:
            put_place(out, record);
            base::put_u64(out, record.session_id);
            base::put_u64(out, record.sequence);
            return put_delivery(out, record.delivery);
        case StoreKind::kDeliveryEnd:
            put_place(out, record);
            base::put_u64(out, record.session_id);
            return base::put_u64(out, record.sequence);
        case StoreKind::kReceived:
        case StoreKind::kReleased:
            put_place(out, record);
            base::put_u64(out, record.session_id);
            return base::put_u16(out, record.packet_id);
        case StoreKind::kMoved:
            return put_place(out, record);
    }
}

bool get_store_record(base::ByteReader& reader, StoreRecord& record) {
    record = {};  // nothing of the record before it
    record.kind = static_cast<StoreKind>(reader.u8());
    switch (record.kind) {
        case StoreKind::kRetain: {
            uint8_t replaces = reader.u8();
            record.replaces = replaces == 1;
            return replaces <= 1 && get_message(reader, record.message);
        }
        case StoreKind::kUnretain:
            record.message.topic = reader.prefixed16();
            return reader.ok();
        case StoreKind::kSession:
            record.session_id = reader.u64();
            return get_session(reader, record.session);
        case StoreKind::kSessionEnd:
            record.session_id = reader.u64();
            return reader.ok();
        case StoreKind::kSubscribe:
            record.session_id = reader.u64();
            return get_subscription(reader, record.subscription);
        case StoreKind::kUnsubscribe:
            record.session_id = reader.u64();
            record.subscription.filter = reader.prefixed16();
            return reader.ok();
        case StoreKind::kMessage:
            return get_place(reader, record) && get_message(reader, record.message);
        case StoreKind::kCopy:
            if (!get_place(reader, record)) return false;
            record.source_id = reader.u64();
            return reader.ok();
        case StoreKind::kDelivery:
            if (!get_place(reader, record)) return false;
            record.session_id = reader.u64();
            record.sequence = reader.u64();
            return get_delivery(reader, record.delivery);
        case StoreKind::kDeliveryEnd:
            if (!get_place(reader, record)) return false;
            record.session_id = reader.u64();
            record.sequence = reader.u64();
            return reader.ok();
        case StoreKind::kReceived:
        case StoreKind::kReleased:
            if (!get_place(reader, record)) return false;
            record.session_id = reader.u64();
            record.packet_id = reader.u16();
            return reader.ok();
        case StoreKind::kMoved:
            return get_place(reader, record);
    }
    return false;
}

}  // namespace pgmqtt::broker
