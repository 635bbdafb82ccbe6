// Names for things that live in tables of slots.
#pragma once

#include <cstdint>

namespace pgmqtt::base {

// A network connection. The slot indexes arrays and is reused; the generation tells a connection
// from the one that had its slot before, so a late completion cannot reach a stranger.
struct ConnectionId {
    uint32_t slot = UINT32_MAX;
    uint32_t generation = 0;

    friend bool operator==(ConnectionId, ConnectionId) = default;
};

inline constexpr ConnectionId kNoConnection{};

}  // namespace pgmqtt::base
