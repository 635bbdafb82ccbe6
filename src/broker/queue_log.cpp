#include "broker/queue_log.h"

#include <algorithm>

namespace pgmqtt::broker {
namespace {

// First byte of a run.
constexpr uint8_t kFormat = 1;

// First byte of an entry: its kind in the low three bits.
constexpr uint8_t kKindBits = 0x07;
// Of a delivery.
constexpr uint8_t kReceivedByClientBit = 0x08;
constexpr uint8_t kSentBit = 0x10;
constexpr uint8_t kRetainBit = 0x20;
constexpr int kQosShift = 6;

// Second byte: what is not as expected after the entry before it, and therefore written.
constexpr uint8_t kSession = 0x01;
constexpr uint8_t kNumber = 0x02;   // else: one more in the same session, 1 in another
constexpr uint8_t kMessage = 0x04;  // else: the same
constexpr uint8_t kPlace = 0x08;    // else: the next row of the same page
constexpr uint8_t kBytes = 0x10;
constexpr uint8_t kExpires = 0x20;
constexpr uint8_t kIdentifiers = 0x40;  // else: none

void put_varint(std::string& out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) base::put_u8(out, static_cast<uint8_t>(value | 0x80));
    base::put_u8(out, static_cast<uint8_t>(value));
}

// The difference, small ones of both signs in one byte. Wraps, and back again.
void put_difference(std::string& out, uint64_t value, uint64_t last) {
    uint64_t difference = value - last;
    bool negative = difference >> 63 != 0;
    put_varint(out, difference << 1 ^ (negative ? ~uint64_t{0} : 0));
}

uint64_t time_number(base::WallTime time) {
    return static_cast<uint64_t>(time.time_since_epoch().count());
}

uint64_t expected_number(const QueueEntry& last, bool same_session) {
    return same_session ? last.number + 1 : 1;
}

Place expected_place(const QueueEntry& last, bool same_message) {
    return same_message ? last.place : last.place + 1;
}

}  // namespace

// --- writing

void QueueWriter::clear() {
    bytes_.clear();
    count_ = 0;
    last_ = {};
}

void QueueWriter::add(const QueueEntry& entry) {
    bool is_delivery = entry.kind == QueueEntry::Kind::kDelivery;
    const StoredDelivery& delivery = entry.delivery;
    if (count_++ == 0) base::put_u8(bytes_, kFormat);
    uint8_t head = static_cast<uint8_t>(entry.kind);
    if (is_delivery) {
        if (delivery.state == DeliveryState::kReceivedByClient) head |= kReceivedByClientBit;
        if (delivery.sent) head |= kSentBit;
        if (delivery.retain) head |= kRetainBit;
        head = static_cast<uint8_t>(head | static_cast<int>(delivery.qos) << kQosShift);
    }
    bool same_session = entry.session_id == last_.session_id;
    bool same_message = entry.message_id == last_.message_id;
    uint8_t changed = 0;
    if (!same_session) changed |= kSession;
    if (entry.number != expected_number(last_, same_session)) changed |= kNumber;
    if (!same_message) changed |= kMessage;
    if (is_delivery) {
        if (entry.place != expected_place(last_, same_message)) changed |= kPlace;
        if (delivery.bytes != last_.delivery.bytes) changed |= kBytes;
        if (delivery.expires_at != last_.delivery.expires_at) changed |= kExpires;
        if (!delivery.subscription_identifiers.empty()) changed |= kIdentifiers;
    }
    base::put_u8(bytes_, head);
    base::put_u8(bytes_, changed);
    if (changed & kSession) put_difference(bytes_, entry.session_id, last_.session_id);
    if (changed & kNumber)
        put_difference(bytes_, entry.number, expected_number(last_, same_session));
    if (changed & kMessage) put_difference(bytes_, entry.message_id, last_.message_id);
    if (changed & kPlace) put_difference(bytes_, entry.place, last_.place);
    if (changed & kBytes) put_varint(bytes_, delivery.bytes);
    if (changed & kExpires)
        put_difference(bytes_, time_number(delivery.expires_at),
                       time_number(last_.delivery.expires_at));
    if (changed & kIdentifiers) {
        put_varint(bytes_, delivery.subscription_identifiers.size());
        bytes_.append(delivery.subscription_identifiers);
    }
    StoredDelivery before = last_.delivery;
    Place place = last_.place;
    last_ = entry;
    last_.delivery.subscription_identifiers = {};
    if (!is_delivery) {
        last_.delivery = before;
        last_.place = place;
    }
}

// --- reading

QueueReader::QueueReader(ByteView bytes) : reader_(bytes) {
    ok_ = bytes.empty() || reader_.u8() == kFormat;
}

bool QueueReader::next(QueueEntry& entry) {
    if (!ok_ || reader_.remaining() == 0) return false;
    ok_ = read(entry) && reader_.ok();
    if (!ok_) return false;
    last_ = entry;
    last_.delivery.subscription_identifiers = {};
    return true;
}

uint64_t QueueReader::varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = reader_.u8();
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    reader_.take(reader_.remaining() + 1);  // fails: too long
    return 0;
}

uint64_t QueueReader::after(uint64_t last) {
    uint64_t value = varint();
    return last + (value >> 1 ^ (value & 1 ? ~uint64_t{0} : 0));
}

bool QueueReader::read(QueueEntry& entry) {
    uint8_t head = reader_.u8();
    uint8_t changed = reader_.u8();
    uint8_t kind = head & kKindBits;
    if (kind < 1 || kind > 4 || changed & 0x80) return false;
    bool is_delivery = kind == static_cast<uint8_t>(QueueEntry::Kind::kDelivery);
    if (!is_delivery && (head & ~kKindBits || changed & ~(kSession | kNumber | kMessage)))
        return false;
    entry = last_;
    entry.kind = static_cast<QueueEntry::Kind>(kind);
    if (changed & kSession) entry.session_id = after(last_.session_id);
    entry.number = expected_number(last_, entry.session_id == last_.session_id);
    if (changed & kNumber) entry.number = after(entry.number);
    if (changed & kMessage) entry.message_id = after(last_.message_id);
    if (is_delivery) read_delivery(head, changed, entry);
    bool is_packet = kind >= static_cast<uint8_t>(QueueEntry::Kind::kReceived);
    if (is_packet && entry.number > UINT16_MAX) return false;
    return entry.delivery.qos <= mqtt::Qos::k2;
}

void QueueReader::read_delivery(uint8_t head, uint8_t changed, QueueEntry& entry) {
    StoredDelivery& delivery = entry.delivery;
    entry.place = changed & kPlace ? after(last_.place)
                                   : expected_place(last_, entry.message_id == last_.message_id);
    delivery.state =
        head & kReceivedByClientBit ? DeliveryState::kReceivedByClient : DeliveryState::kQueued;
    delivery.sent = (head & kSentBit) != 0;
    delivery.retain = (head & kRetainBit) != 0;
    delivery.qos = static_cast<mqtt::Qos>(head >> kQosShift);
    if (changed & kBytes) delivery.bytes = static_cast<uint32_t>(varint());
    if (changed & kExpires)
        delivery.expires_at = base::WallTime(std::chrono::microseconds(
            static_cast<int64_t>(after(time_number(last_.delivery.expires_at)))));
    if (changed & kIdentifiers) delivery.subscription_identifiers = reader_.take(varint());
}

// --- replay

bool QueueReplay::add(ByteView run) {
    QueueReader reader(run);
    QueueEntry entry;
    while (reader.next(entry)) apply(entry);
    return reader.ok();
}

void QueueReplay::apply(const QueueEntry& entry) {
    Queue& queue = queue_of(entry.session_id);
    last_id_ = std::max(last_id_, entry.message_id);
    switch (entry.kind) {
        case QueueEntry::Kind::kDelivery:
            ++added_;
            return write(queue, entry);
        case QueueEntry::Kind::kEnd:
            return end(queue, entry.number);
        case QueueEntry::Kind::kReceived:
            ++added_;
            queue.received[static_cast<uint16_t>(entry.number)] = entry.message_id;
            return;
        case QueueEntry::Kind::kReleased:
            queue.received.erase(static_cast<uint16_t>(entry.number));
    }
}

QueueReplay::Queue& QueueReplay::queue_of(uint64_t session_id) {
    if (current_ == nullptr || current_id_ != session_id) {
        current_ = &queues_[session_id];
        current_id_ = session_id;
    }
    return *current_;
}

void QueueReplay::end(Queue& queue, uint64_t sequence) {
    Slot* slot = queue.slots.find(sequence);
    if (slot == nullptr || slot->over) return;
    slot->over = true;
    constexpr size_t kWorthwhile = 64;
    if (++queue.over < kWorthwhile || queue.over * 2 < queue.slots.size()) return;
    queue.slots.erase_if([](const Slot& old) { return old.over; });
    queue.over = 0;
}

void QueueReplay::write(Queue& queue, const QueueEntry& entry) {
    Slot slot{.sequence = entry.number,
              .message_id = entry.message_id,
              .place = entry.place,
              .expires_at = static_cast<int64_t>(time_number(entry.delivery.expires_at)),
              .bytes = entry.delivery.bytes,
              .identifiers = keep(entry.delivery.subscription_identifiers),
              .state = entry.delivery.state,
              .qos = entry.delivery.qos,
              .sent = entry.delivery.sent,
              .retain = entry.delivery.retain};
    Slot* known = queue.slots.find(entry.number);
    if (known == nullptr) return queue.slots.add(slot);
    if (known->over) --queue.over;
    *known = slot;
}

// A few different lists serve all deliveries.
uint32_t QueueReplay::keep(ByteView identifiers) {
    if (identifiers.empty()) return 0;
    auto [position, fresh] = identifier_index_.try_emplace(
        std::string(identifiers), static_cast<uint32_t>(identifiers_.size() + 1));
    if (fresh) identifiers_.emplace_back(identifiers);
    return position->second;
}

std::vector<uint64_t> QueueReplay::sessions() const {
    std::vector<uint64_t> ids;
    ids.reserve(queues_.size());
    for (const auto& [id, queue] : queues_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    return ids;
}

QueueEntry QueueReplay::entry_of(uint64_t session_id, const Slot& slot) const {
    QueueEntry entry{.kind = QueueEntry::Kind::kDelivery,
                     .session_id = session_id,
                     .number = slot.sequence,
                     .message_id = slot.message_id,
                     .place = slot.place};
    entry.delivery = {.state = slot.state,
                      .sent = slot.sent,
                      .qos = slot.qos,
                      .retain = slot.retain,
                      .subscription_identifiers = {},
                      .bytes = slot.bytes,
                      .expires_at = base::WallTime(std::chrono::microseconds(slot.expires_at))};
    if (slot.identifiers != 0)
        entry.delivery.subscription_identifiers = identifiers_[slot.identifiers - 1];
    return entry;
}

}  // namespace pgmqtt::broker
