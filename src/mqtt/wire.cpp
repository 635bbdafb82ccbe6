#include "mqtt/wire.h"

#include "mqtt/utf8.h"

namespace pgmqtt::mqtt::wire {

ByteView Reader::text() {
    ByteView text = binary();
    if (!is_valid_string(text)) malformed("string is not UTF-8, or holds U+0000");
    return text;
}

uint32_t Reader::variable_integer() {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 28; shift += 7) {
        uint8_t byte = u8();
        value |= static_cast<uint32_t>(byte & 0x7F) << shift;
        if (byte >= 0x80) continue;
        if (byte == 0 && shift > 0) malformed("variable byte integer is longer than it needs");
        return value;
    }
    malformed("variable byte integer has more than 4 bytes");
    return 0;
}

namespace {

// Writes to `bytes`, which has room for 4, and returns how many it took.
size_t write_variable_integer(uint32_t value, char* bytes) {
    size_t count = 0;
    do {
        uint32_t more = value >= 128 ? 0x80 : 0;
        bytes[count++] = static_cast<char>((value & 0x7F) | more);
        value >>= 7;
    } while (value != 0);
    return count;
}

}  // namespace

void put_variable_integer(std::string& out, uint32_t value) {
    char bytes[5];
    out.append(bytes, write_variable_integer(value, bytes));
}

PacketWriter::~PacketWriter() {
    char bytes[5];
    size_t count = write_variable_integer(static_cast<uint32_t>(out_.size() - body_), bytes);
    out_.replace(body_ - 1, 1, bytes, count);
}

}  // namespace pgmqtt::mqtt::wire
