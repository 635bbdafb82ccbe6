#include "loadtest/payload.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pgmqtt::loadtest {
namespace {

struct Layout {
    uint64_t hash;
    Stamp stamp;
};
static_assert(sizeof(Layout) == Payload::kMinSize);

uint64_t hash_of(base::ByteView payload) {
    return XXH3_64bits(payload.data() + sizeof(uint64_t), payload.size() - sizeof(uint64_t));
}

}  // namespace

Payload::Payload(size_t size) : bytes_(size < kMinSize ? kMinSize : size, '\0') {
    // Not compressible at a glance, the same in every run.
    uint32_t state = 0x9e3779b9;
    for (size_t i = kMinSize; i < bytes_.size(); ++i) {
        state = state * 1664525 + 1013904223;
        bytes_[i] = static_cast<char>(state >> 24);
    }
}

base::ByteView Payload::stamp(const Stamp& stamp) {
    std::memcpy(bytes_.data() + sizeof(uint64_t), &stamp, sizeof stamp);
    uint64_t hash = hash_of(bytes_);
    std::memcpy(bytes_.data(), &hash, sizeof hash);
    return bytes_;
}

base::ByteView Payload::stamp_json(const Stamp& stamp) {
    json_ = "{\"r\":" + std::to_string(stamp.run) + ",\"p\":" + std::to_string(stamp.publisher) +
            ",\"s\":" + std::to_string(stamp.sequence) +
            ",\"t\":" + std::to_string(stamp.scheduled);
    constexpr base::ByteView kFiller = ",\"f\":\"\"}";
    size_t filler = json_.size() + kFiller.size() < bytes_.size()
                        ? bytes_.size() - json_.size() - kFiller.size()
                        : 0;
    json_ += ",\"f\":\"";
    json_.append(filler, 'x');
    json_ += "\"}";
    return json_;
}

std::optional<Stamp> read_stamp(base::ByteView payload) {
    if (payload.size() < Payload::kMinSize) return std::nullopt;
    uint64_t hash;
    std::memcpy(&hash, payload.data(), sizeof hash);
    if (hash != hash_of(payload)) return std::nullopt;
    Stamp stamp;
    std::memcpy(&stamp, payload.data() + sizeof hash, sizeof stamp);
    return stamp;
}

}  // namespace pgmqtt::loadtest
