// Bytes as the wire knows them: views, a bounded reader, big-endian writers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pgmqtt::base {

// A run of bytes owned by someone else. Not text: it may hold NUL and any other byte.
using ByteView = std::string_view;

// Reads big-endian fields from a view. Never reads past the end: the first read that would do so
// fails, and so does every read after it, so a caller may read several fields and check ok() once.
class ByteReader {
   public:
    explicit ByteReader(ByteView bytes) : bytes_(bytes) {}

    bool ok() const { return ok_; }
    size_t remaining() const { return bytes_.size() - position_; }
    size_t position() const { return position_; }
    ByteView rest() const { return bytes_.substr(position_); }

    uint8_t u8() { return static_cast<uint8_t>(integer(1)); }
    uint16_t u16() { return static_cast<uint16_t>(integer(2)); }
    uint32_t u32() { return static_cast<uint32_t>(integer(4)); }
    uint64_t u64() { return integer(8); }

    ByteView take(size_t count) {
        if (!ok_ || count > remaining()) {
            ok_ = false;
            return {};
        }
        ByteView taken = bytes_.substr(position_, count);
        position_ += count;
        return taken;
    }

    // Bytes behind a 16-bit length: the wire's strings and binary data.
    ByteView prefixed16() { return take(u16()); }
    // Bytes behind a 32-bit length: used between processes, never on the wire.
    ByteView prefixed32() { return take(u32()); }

   private:
    uint64_t integer(size_t width) {
        ByteView field = take(width);
        uint64_t value = 0;
        for (char byte : field) value = value << 8 | static_cast<uint8_t>(byte);
        return value;
    }

    ByteView bytes_;
    size_t position_ = 0;
    bool ok_ = true;
};

inline void put_u8(std::string& out, uint8_t value) {
    out.push_back(static_cast<char>(value));
}

inline void put_u16(std::string& out, uint16_t value) {
    put_u8(out, static_cast<uint8_t>(value >> 8));
    put_u8(out, static_cast<uint8_t>(value));
}

inline void put_u32(std::string& out, uint32_t value) {
    put_u16(out, static_cast<uint16_t>(value >> 16));
    put_u16(out, static_cast<uint16_t>(value));
}

inline void put_u64(std::string& out, uint64_t value) {
    put_u32(out, static_cast<uint32_t>(value >> 32));
    put_u32(out, static_cast<uint32_t>(value));
}

// The caller has checked that bytes.size() fits the length field.
inline void put_prefixed16(std::string& out, ByteView bytes) {
    put_u16(out, static_cast<uint16_t>(bytes.size()));
    out.append(bytes);
}

inline void put_prefixed32(std::string& out, ByteView bytes) {
    put_u32(out, static_cast<uint32_t>(bytes.size()));
    out.append(bytes);
}

}  // namespace pgmqtt::base
