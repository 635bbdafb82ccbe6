// Packets <-> bytes, strict by the letter of each version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "mqtt/packet.h"

namespace pgmqtt::mqtt {

// The largest remaining length, and with its fixed header of 5 bytes the largest packet,
// section 1.5.5.
inline constexpr uint32_t kMaxRemainingLength = 268'435'455;
inline constexpr uint32_t kMaxPacketSize = kMaxRemainingLength + 5;

// Who sent the bytes: a server never accepts CONNACK, a client never CONNECT.
enum class Sender : uint8_t { kClient, kServer };

struct DecodeError {
    // 5.0 code to close with: 0x81 malformed, 0x82 protocol error, 0x95 too large, 0x84 version,
    // 0x90 topic name, 0x8F filter, 0x94 alias 0. Callers of older versions only close, but for
    // 0x84 in CONNECT: CONNACK 0x01 [MQTT-3.1.2-2].
    ReasonCode reason = ReasonCode::kMalformedPacket;
    const char* detail = "";  // static text for the log, e.g. "reserved flag bits are set"
    // The level byte of a CONNECT as received, when it got that far: tells how to phrase the
    // CONNACK. 0 with an unknown protocol name.
    uint8_t protocol_level = 0;
};

// A complete packet at the front of a buffer.
struct Frame {
    uint8_t first_byte = 0;  // type and flags
    ByteView body;           // what follows the remaining length
    size_t size = 0;         // whole packet, with its fixed header
    // The remaining length used as few bytes as possible: a must in 5.0 [MQTT-1.5.5-1], which
    // decode() enforces; 3.1 and 3.1.1 do not ask for it.
    bool minimal_length = true;
};

enum class FrameState : uint8_t { kComplete, kIncomplete };

// Looks for one packet at the front of `buffer`. A packet larger than `max_packet_size` (bytes,
// whole packet) fails as soon as its length is known, before anybody buffers it [MQTT-3.2.2-15].
// When the packet is incomplete or too large, `frame.size` is its size if already known, else 0,
// and `frame.body` what of it is there.
base::Result<FrameState, DecodeError> next_frame(ByteView buffer, uint32_t max_packet_size,
                                                 Frame& frame);

// CONNECT says its own version. Views in the result point into `frame.body`.
base::Result<Connect, DecodeError> decode_connect(const Frame& frame);

// Any packet but CONNECT, under the connection's version, into `packet`, whose storage is reused
// (vectors keep their capacity when the alternative stays the same).
base::Status<DecodeError> decode(const Frame& frame, Version version, Sender sender,
                                 Packet& packet);

// The PUBLISH of `frame` straight into `publish`, for the path where every nanosecond counts. The
// caller has looked at the type; flags are checked here.
base::Status<DecodeError> decode_publish(const Frame& frame, Version version, Publish& publish,
                                         Sender sender = Sender::kClient);

// Appends the packet's bytes to `out`. The packet must be valid for the version (strings <= 65535
// bytes, whole packet <= kMaxPacketSize, reason listed for the packet): the codec does not check. A
// property that may not stand in the packet is left out. CONNECT says its own version.
void encode(const Packet& packet, Version version, std::string& out);
void encode(const Publish& publish, Version version, std::string& out);

// Everything of a PUBLISH before its payload, for payloads that are shared, not copied.
void encode_publish_head(const Publish& publish, Version version, std::string& out);

// Bytes encode() would append for this PUBLISH; for Maximum Packet Size [MQTT-3.1.2-24].
size_t encoded_size(const Publish& publish, Version version);

// Whether section 3.x.2.1 of 5.0 lists `code` for this packet and this sender.
bool is_allowed_reason(PacketType type, ReasonCode code, Sender sender);

// The property section of a PUBLISH or will in 5.0's own encoding (without its length prefix), as
// it is stored and passed between processes, and back. Only what 3.3.2.3 lets a server forward is
// kept: payload format, expiry, content type, response topic, correlation data, user properties.
void encode_message_properties(const Properties& properties, std::string& out);
base::Status<DecodeError> decode_message_properties(ByteView bytes, Properties& properties);

}  // namespace pgmqtt::mqtt
