// The data types of section 1.5: a reader that remembers the first fault, and writers.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "mqtt/codec.h"

namespace pgmqtt::mqtt::wire {

// Reads the fields of one packet. After a fault every read returns something harmless, so a decoder
// reads straight on and asks once, at the end or before it loops.
class Reader {
   public:
    explicit Reader(ByteView bytes) : in_(bytes) {}

    bool ok() const { return fault_.reason == ReasonCode::kSuccess; }
    const DecodeError& fault() const { return fault_; }
    size_t remaining() const { return in_.remaining(); }
    ByteView rest() const { return in_.rest(); }

    // The first fault counts.
    void fail(ReasonCode reason, const char* detail) {
        if (ok()) fault_ = {reason, detail, 0};
    }
    void malformed(const char* detail) { fail(ReasonCode::kMalformedPacket, detail); }
    void protocol_error(const char* detail) { fail(ReasonCode::kProtocolError, detail); }
    // A section that had a reader of its own.
    void absorb(const Reader& section) {
        if (!section.ok()) fail(section.fault_.reason, section.fault_.detail);
    }

    uint8_t u8() { return bounded(in_.u8()); }
    uint16_t u16() { return bounded(in_.u16()); }
    uint32_t u32() { return bounded(in_.u32()); }
    ByteView take(size_t count) { return bounded(in_.take(count)); }
    ByteView binary() { return bounded(in_.prefixed16()); }

    // A UTF-8 string, section 1.5.4.
    ByteView text();
    // A variable byte integer, section 1.5.5.
    uint32_t variable_integer();
    // Not 0 [MQTT-2.2.1-3] [MQTT-2.3.1-1].
    uint16_t packet_id() {
        uint16_t id = u16();
        if (id == 0) protocol_error("packet identifier is 0");
        return id;
    }

    base::Status<DecodeError> status() const {
        if (!ok()) return base::fail(fault_);
        return base::Done{};
    }
    // Nothing may follow the last field.
    base::Status<DecodeError> finish() {
        if (ok() && remaining() != 0) malformed("bytes follow the last field");
        return status();
    }

   private:
    template <class T>
    T bounded(T value) {
        if (!in_.ok()) [[unlikely]]
            malformed("packet ends inside a field");
        return value;
    }

    base::ByteReader in_;
    DecodeError fault_{ReasonCode::kSuccess, "", 0};
};

inline size_t variable_integer_size(uint32_t value) {
    return value < 128 ? 1 : value < 16384 ? 2 : value < 2097152 ? 3 : 4;
}

void put_variable_integer(std::string& out, uint32_t value);

// Appends a packet whose size is known only once its body is written.
class PacketWriter {
   public:
    PacketWriter(std::string& out, PacketType type, uint8_t flags = 0)
        : out_(out), body_(out.size() + 2) {
        base::put_u8(out, static_cast<uint8_t>(static_cast<unsigned>(type) << 4 | flags));
        base::put_u8(out, 0);
    }
    PacketWriter(const PacketWriter&) = delete;
    PacketWriter& operator=(const PacketWriter&) = delete;

    // Makes room for the remaining length and writes it.
    ~PacketWriter();

   private:
    std::string& out_;
    size_t body_;
};

}  // namespace pgmqtt::mqtt::wire
