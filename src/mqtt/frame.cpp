#include "mqtt/codec.h"

namespace pgmqtt::mqtt {

// The fixed header, section 2.1.
base::Result<FrameState, DecodeError> next_frame(ByteView buffer, uint32_t max_packet_size,
                                                 Frame& frame) {
    constexpr size_t kMaxLengthBytes = 4;
    frame = Frame{};
    if (buffer.empty()) return FrameState::kIncomplete;
    frame.first_byte = static_cast<uint8_t>(buffer[0]);

    size_t length = 0;
    size_t header = 1;
    uint8_t byte = 0x80;
    while (byte >= 0x80) {
        if (header > kMaxLengthBytes)
            return base::fail(DecodeError{ReasonCode::kMalformedPacket,
                                          "remaining length has more than 4 bytes", 0});
        if (header == buffer.size()) return FrameState::kIncomplete;
        byte = static_cast<uint8_t>(buffer[header]);
        length |= static_cast<size_t>(byte & 0x7F) << 7 * (header - 1);
        ++header;
    }
    frame.minimal_length = byte != 0 || header == 2;
    frame.size = header + length;
    frame.body = buffer.substr(header, length);
    if (frame.size > max_packet_size)
        return base::fail(DecodeError{ReasonCode::kPacketTooLarge, "packet is too large", 0});
    if (buffer.size() < frame.size) return FrameState::kIncomplete;
    return FrameState::kComplete;
}

}  // namespace pgmqtt::mqtt
