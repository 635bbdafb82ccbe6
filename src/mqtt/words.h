// Eight bytes of text at a time: topics are short, mostly ASCII, and checked for every message.
#pragma once

#include <cstdint>
#include <cstring>

namespace pgmqtt::mqtt::words {

inline constexpr uint64_t kEachByte = 0x0101010101010101;
inline constexpr uint64_t kHighBits = 0x8080808080808080;

inline uint64_t load(const char* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

inline bool is_ascii(uint64_t word) {
    return (word & kHighBits) == 0;
}

// Some byte of `word` is `byte`.
inline bool contains(uint64_t word, char byte) {
    uint64_t zeros = word ^ kEachByte * static_cast<uint8_t>(byte);
    return ((zeros - kEachByte) & ~zeros & kHighBits) != 0;
}

}  // namespace pgmqtt::mqtt::words
