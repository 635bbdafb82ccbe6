// Packet identifiers of publishes in flight, each with its token.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pgmqtt::loadtest {

// Identifiers are 1..N, N a power of two with room for twice the limit where 16 bits allow: the
// table stays small and the next one is nearly always free.
class PacketIds {
   public:
    void reset(size_t limit) {
        limit_ = limit < 1 ? 1 : limit > 65535 ? 65535 : limit;
        size_t size = std::bit_ceil(2 * limit_ + 1);
        if (size > 65536) size = 65536;
        tokens_.assign(size, kFree);
        next_ = 1;
        used_ = 0;
    }

    bool full() const { return used_ >= limit_; }
    size_t used() const { return used_; }

    // Not when full. `token` may be anything but UINT64_MAX.
    uint16_t take(uint64_t token) {
        while (tokens_[next_] != kFree) advance();
        uint16_t id = static_cast<uint16_t>(next_);
        tokens_[next_] = token;
        ++used_;
        advance();
        return id;
    }

    bool is_used(uint16_t id) const { return id < tokens_.size() && tokens_[id] != kFree; }

    // The token, and the identifier is free; nothing if it was not used.
    std::optional<uint64_t> give_back(uint16_t id) {
        if (!is_used(id)) return std::nullopt;
        uint64_t token = tokens_[id];
        tokens_[id] = kFree;
        --used_;
        return token;
    }

   private:
    static constexpr uint64_t kFree = UINT64_MAX;

    void advance() {
        if (++next_ == tokens_.size()) next_ = 1;
    }

    std::vector<uint64_t> tokens_;  // [0] is never used: there is no identifier 0
    size_t limit_ = 0;
    size_t next_ = 1;
    size_t used_ = 0;
};

}  // namespace pgmqtt::loadtest
