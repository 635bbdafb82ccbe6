#include "broker/client_record.h"

namespace pgmqtt::broker {

namespace {

void put_time(std::string& bytes, base::WallTime time) {
    base::put_u64(bytes, static_cast<uint64_t>(time.time_since_epoch().count()));
}

base::WallTime read_time(base::ByteReader& reader) {
    return base::WallTime(std::chrono::microseconds(static_cast<int64_t>(reader.u64())));
}

// The numbers, in order, for both directions.
template <class Record, class Visit>
void for_each_number(Record& record, Visit visit) {
    for (auto* number :
         {&record.subscriptions, &record.inflight_out, &record.inflight_in, &record.queued,
          &record.queued_bytes, &record.messages_in, &record.messages_out, &record.bytes_in,
          &record.bytes_out, &record.dropped}) {
        visit(*number);
    }
}

}  // namespace

void encode(const ClientRecord& record, std::string& bytes) {
    base::put_prefixed32(bytes, record.client_id);
    base::put_prefixed32(bytes, record.username);
    base::put_prefixed32(bytes, record.address);
    base::put_u16(bytes, record.port);
    base::put_u8(bytes, static_cast<uint8_t>(record.transport));
    base::put_u8(bytes, static_cast<uint8_t>(record.version));
    put_time(bytes, record.connected_at);
    put_time(bytes, record.last_packet_at);
    base::put_u16(bytes, record.keep_alive);
    base::put_u8(bytes, record.clean_start);
    base::put_u32(bytes, record.session_expiry);
    for_each_number(record, [&](uint64_t number) { base::put_u64(bytes, number); });
    base::put_u8(bytes, record.throttled);
}

bool decode(base::ByteView bytes, ClientRecord& record) {
    base::ByteReader reader(bytes);
    record.client_id = reader.prefixed32();
    record.username = reader.prefixed32();
    record.address = reader.prefixed32();
    record.port = reader.u16();
    record.transport = static_cast<TransportKind>(reader.u8());
    record.version = static_cast<mqtt::Version>(reader.u8());
    record.connected_at = read_time(reader);
    record.last_packet_at = read_time(reader);
    record.keep_alive = reader.u16();
    record.clean_start = reader.u8() != 0;
    record.session_expiry = reader.u32();
    for_each_number(record, [&](uint64_t& number) { number = reader.u64(); });
    record.throttled = reader.u8() != 0;
    return reader.ok() && reader.remaining() == 0;
}

}  // namespace pgmqtt::broker
