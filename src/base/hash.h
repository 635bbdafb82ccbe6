// xxHash behind one name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <xxhash.h>

#include "base/bytes.h"

namespace pgmqtt::base {

inline uint64_t hash(ByteView bytes, uint64_t seed = 0) {
    return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

// For unordered containers with std::string keys that are looked up by view.
struct BytesHash {
    using is_transparent = void;
    size_t operator()(ByteView bytes) const { return hash(bytes); }
};

}  // namespace pgmqtt::base
