// One packet: what decodes must survive encode and decode unchanged. The first byte of the input
// chooses version and sender, as corpus.py writes it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "mqtt/codec.h"

namespace {

using namespace pgmqtt::mqtt;

void require(bool holds) {
    if (!holds) std::abort();
}

bool decode_any(const Frame& frame, Version version, Sender sender, Packet& packet) {
    if (frame.first_byte >> 4 != 1) return decode(frame, version, sender, packet).ok();
    auto connect = decode_connect(frame);
    if (connect.ok()) packet = *connect;
    return connect.ok();
}

// CONNECT brings its own version.
Version version_of(const Packet& packet, Version version) {
    const Connect* connect = std::get_if<Connect>(&packet);
    return connect != nullptr ? connect->version : version;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    Version version{static_cast<uint8_t>(3 + (data[0] & 3) % 3)};
    Sender sender = data[0] & 4 ? Sender::kServer : Sender::kClient;
    ByteView bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

    Frame frame;
    auto state = next_frame(bytes, kMaxPacketSize, frame);
    if (!state.ok()) return 0;
    if (*state == FrameState::kIncomplete) {
        // Make it a whole packet, so that the fuzzer need not guess the length.
        if (bytes.size() < 2) return 0;
        frame = {data[1], bytes.substr(1), bytes.size(), true};
    }
    Packet packet;
    if (!decode_any(frame, version, sender, packet)) return 0;

    version = version_of(packet, version);
    std::string encoded;
    encode(packet, version, encoded);
    Frame frame_again;
    Packet packet_again;
    auto state_again = next_frame(encoded, kMaxPacketSize, frame_again);
    require(state_again.ok() && *state_again == FrameState::kComplete);
    require(frame_again.size == encoded.size());
    require(decode_any(frame_again, version, sender, packet_again));
    require(packet_again == packet);

    std::string encoded_again;
    encode(packet_again, version, encoded_again);
    require(encoded_again == encoded);
    if (const Publish* publish = std::get_if<Publish>(&packet))
        require(encoded_size(*publish, version) == encoded.size());
    return 0;
}
