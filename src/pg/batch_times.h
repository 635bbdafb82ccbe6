// How long the latest batches of something took, in shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace pgmqtt::pg {

// Written by one process, read by any: who reads may see a batch more or less.
struct BatchTimes {
    static constexpr uint32_t kCapacity = 256;

    std::atomic<uint32_t> count;  // ever
    std::atomic<uint32_t> micros[kCapacity];

    void add(uint32_t duration) {
        uint32_t number = count.load(std::memory_order_relaxed);
        micros[number % kCapacity].store(duration, std::memory_order_relaxed);
        count.store(number + 1, std::memory_order_release);
    }

    // Both 0 when there was none.
    struct Percentiles {
        uint32_t p50 = 0;
        uint32_t p99 = 0;
    };
    Percentiles percentiles() const {
        std::array<uint32_t, kCapacity> sorted;
        size_t size = std::min(count.load(std::memory_order_acquire), kCapacity);
        if (size == 0) return {};
        for (size_t i = 0; i < size; ++i) sorted[i] = micros[i].load(std::memory_order_relaxed);
        std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(size));
        return {sorted[(size - 1) / 2], sorted[(size * 99 + 99) / 100 - 1]};
    }
};

}  // namespace pgmqtt::pg
