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

// The same for keys that strangers choose: without the seed nobody can make them collide.
struct SeededBytesHash {
    using is_transparent = void;
    uint64_t seed = 0;
    size_t operator()(ByteView bytes) const { return hash(bytes, seed); }
};

}  // namespace pgmqtt::base
