#include "broker/batch.h"

#include "broker/wall_time.h"

namespace pgmqtt::broker {

namespace {

// Changes whenever the bytes of a record do: a worker of another build must not misread them.
constexpr uint8_t kFormat = 5;

// What a record costs at least; a count that promises more records than that is a lie.
constexpr size_t kSmallestRecord = 1;

}  // namespace

BatchWriter::BatchWriter(BatchKind kind) : kind_(kind) {
    clear();
}

void BatchWriter::clear() {
    count_ = 0;
    bytes_.assign(kHeaderSize, '\0');
}

void BatchWriter::add(const StoreRecord& record) {
    put_store_record(bytes_, record);
    ++count_;
}

void BatchWriter::add(const SinkRecord& record) {
    base::put_u64(bytes_, record.token);
    base::put_u32(bytes_, static_cast<uint32_t>(record.sink_ids.size()));
    for (uint32_t id : record.sink_ids) base::put_u32(bytes_, id);
    put_message(bytes_, record.message);
    base::put_prefixed16(bytes_, record.client_id);
    base::put_prefixed16(bytes_, record.username);
    base::put_u16(bytes_, record.packet_id);
    base::put_u8(bytes_, record.dup ? 1 : 0);
    base::put_u64(bytes_, record.session_id);
    put_time(bytes_, record.session_created_at);
    ++count_;
}

void BatchWriter::add(const PublishRecord& record) {
    put_message(bytes_, record.message);
    ++count_;
}

void BatchWriter::add(const CommandRecord& record) {
    base::put_u64(bytes_, record.id);
    base::put_u8(bytes_, static_cast<uint8_t>(record.action));
    base::put_prefixed16(bytes_, record.client_id);
    base::put_u8(bytes_, static_cast<uint8_t>(record.reason));
    put_time(bytes_, record.given_at);
    ++count_;
}

void BatchWriter::add(const CompletionRecord& record) {
    base::put_u64(bytes_, record.token);
    base::put_u8(bytes_, static_cast<uint8_t>(record.reason));
    base::put_prefixed32(bytes_, record.reason_string);
    ++count_;
}

void BatchWriter::add(const FetchRecord& record) {
    base::put_u64(bytes_, record.message_id);
    put_durability(bytes_, record.durability);
    ++count_;
}

void BatchWriter::add(const FetchedRecord& record) {
    base::put_u64(bytes_, record.message_id);
    base::put_u8(bytes_, record.found ? 1 : 0);
    if (record.found) put_message(bytes_, record.message);
    ++count_;
}

void BatchWriter::add(const MoveRecord& record) {
    put_durability(bytes_, record.durability);
    base::put_u64(bytes_, record.up_to);
    ++count_;
}

void BatchWriter::add_encoded(ByteView records, uint32_t count) {
    bytes_.append(records);
    count_ += count;
}

ByteView BatchWriter::finish(uint64_t number) {
    std::string header;
    base::put_u8(header, kFormat);
    base::put_u8(header, static_cast<uint8_t>(kind_));
    base::put_u64(header, number);
    base::put_u32(header, count_);
    bytes_.replace(0, kHeaderSize, header);
    return bytes_;
}

BatchReader::BatchReader(ByteView batch) : reader_(batch) {
    uint8_t format = reader_.u8();
    uint8_t kind = reader_.u8();
    number_ = reader_.u64();
    count_ = reader_.u32();
    ok_ = reader_.ok() && format == kFormat && kind >= static_cast<uint8_t>(BatchKind::kStore) &&
          kind <= static_cast<uint8_t>(BatchKind::kMove) &&
          count_ <= reader_.remaining() / kSmallestRecord;
    if (!ok_) {
        count_ = 0;
        return;
    }
    kind_ = static_cast<BatchKind>(kind);
    if (count_ == 0 && reader_.remaining() > 0) ok_ = false;
}

bool BatchReader::begin_record(BatchKind kind) {
    if (!ok_ || read_ == count_) return false;
    if (kind_ != kind) ok_ = false;
    return ok_;
}

bool BatchReader::end_record(bool record_ok) {
    ok_ = record_ok && reader_.ok();
    if (!ok_) return false;
    ++read_;
    if (read_ == count_ && reader_.remaining() > 0) ok_ = false;
    return ok_;
}

bool BatchReader::next(StoreRecord& record) {
    if (!begin_record(BatchKind::kStore)) return false;
    return end_record(get_store_record(reader_, record));
}

bool BatchReader::next(SinkRecord& record) {
    if (!begin_record(BatchKind::kSink)) return false;
    record.token = reader_.u64();
    uint32_t sinks = reader_.u32();
    record.sink_ids.clear();
    // Checked before anything is allocated for it.
    if (!reader_.ok() || sinks > reader_.remaining() / sizeof(uint32_t)) return end_record(false);
    for (uint32_t i = 0; i < sinks; ++i) record.sink_ids.push_back(reader_.u32());
    bool message_ok = get_message(reader_, record.message);
    record.client_id = reader_.prefixed16();
    record.username = reader_.prefixed16();
    record.packet_id = reader_.u16();
    uint8_t dup = reader_.u8();
    record.dup = dup == 1;
    record.session_id = reader_.u64();
    record.session_created_at = get_time(reader_);
    return end_record(message_ok && dup <= 1);
}

bool BatchReader::next(PublishRecord& record) {
    if (!begin_record(BatchKind::kPublish)) return false;
    return end_record(get_message(reader_, record.message));
}

bool BatchReader::next(CommandRecord& record) {
    if (!begin_record(BatchKind::kCommand)) return false;
    record.id = reader_.u64();
    uint8_t action = reader_.u8();
    record.action = static_cast<CommandAction>(action);
    record.client_id = reader_.prefixed16();
    record.reason = static_cast<mqtt::ReasonCode>(reader_.u8());
    record.given_at = get_time(reader_);
    return end_record(action >= 1 && action <= 2);
}

bool BatchReader::next(CompletionRecord& record) {
    if (!begin_record(BatchKind::kCompletion)) return false;
    record.token = reader_.u64();
    record.reason = static_cast<mqtt::ReasonCode>(reader_.u8());
    record.reason_string = reader_.prefixed32();
    return end_record(true);
}

bool BatchReader::next(FetchRecord& record) {
    if (!begin_record(BatchKind::kFetch)) return false;
    record.message_id = reader_.u64();
    return end_record(get_durability(reader_, record.durability));
}

bool BatchReader::next(FetchedRecord& record) {
    if (!begin_record(BatchKind::kFetched)) return false;
    record = {};
    record.message_id = reader_.u64();
    uint8_t found = reader_.u8();
    record.found = found == 1;
    return end_record(found <= 1 && (!record.found || get_message(reader_, record.message)));
}

bool BatchReader::next(MoveRecord& record) {
    if (!begin_record(BatchKind::kMove)) return false;
    bool durability_ok = get_durability(reader_, record.durability);
    record.up_to = reader_.u64();
    return end_record(durability_ok);
}

std::string batch_done(BatchKind kind, uint64_t number) {
    return std::string(BatchWriter(kind).finish(number));
}

}  // namespace pgmqtt::broker
