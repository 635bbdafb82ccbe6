// A stream of packets: however it is cut into chunks, next_frame() finds the same packets and the
// same error. The first byte of the input seeds the cuts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "mqtt/codec.h"

namespace {

using namespace pgmqtt::mqtt;

constexpr uint32_t kLimit = 4096;  // small, so that the fuzzer meets it

struct Found {
    std::vector<std::string> packets;  // first byte and body
    int error = 0;
    bool operator==(const Found&) const = default;
};

// Takes whole packets off the front of `buffer`.
void take_packets(std::string& buffer, Found& found) {
    size_t at = 0;
    while (found.error == 0) {
        Frame frame;
        auto state = next_frame(ByteView(buffer).substr(at), kLimit, frame);
        if (!state.ok()) {
            found.error = static_cast<int>(state.error().reason);
        } else if (*state == FrameState::kIncomplete) {
            if (frame.size != 0 && frame.size <= buffer.size() - at) std::abort();
            break;
        } else {
            std::string packet(1, static_cast<char>(frame.first_byte));
            found.packets.push_back(packet.append(frame.body));
            at += frame.size;
        }
    }
    buffer.erase(0, at);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    ByteView stream(reinterpret_cast<const char*>(data) + 1, size - 1);
    std::string buffer(stream);
    Found whole;
    take_packets(buffer, whole);

    uint32_t dice = data[0];
    Found chunked;
    buffer.clear();
    while (!stream.empty()) {
        dice = dice * 1664525 + 1013904223;
        size_t length = std::min<size_t>(1 + (dice >> 24) % 7, stream.size());
        buffer.append(stream.substr(0, length));
        stream.remove_prefix(length);
        take_packets(buffer, chunked);
    }
    if (whole != chunked) std::abort();
    return 0;
}
