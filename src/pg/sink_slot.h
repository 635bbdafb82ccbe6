// What pgmqtt.sinks shows of a sink at work. One process writes, the sink worker; anybody reads.
#pragma once

#include "pg/backend.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pg/batch_times.h"

namespace pgmqtt::pg {

enum class SinkState : int {
    kActive,
    kWaiting,  // a transient error; tried again with back-off
    kError,    // the statement cannot run; tried again with back-off
};

// In shared memory: no pointers, and lock-free.
struct SinkSlot {
    static constexpr size_t kMessageBytes = 256;

    std::atomic<uint32_t> sink_id;  // 0: the slot is free
    std::atomic<int> state;         // SinkState
    std::atomic<uint64_t> messages;
    std::atomic<uint64_t> dead_letters;
    std::atomic<uint64_t> retries;
    std::atomic<uint64_t> pending;
    std::atomic<uint64_t> batches;     // transactions that stored, or gave up, a message
    std::atomic<int64_t> waits_since;  // microseconds of wall time; 0: nothing waits
    BatchTimes times;
    std::atomic<uint32_t> version;  // odd while `message` is being written
    std::atomic<char> message[kMessageBytes];

    // Of the writer.
    void clear(uint32_t id) {
        sink_id = 0;
        set(SinkState::kActive, {});
        messages = dead_letters = retries = pending = batches = 0;
        waits_since = 0;
        times.count = 0;
        sink_id = id;
    }

    // The text is cut where it must be; the caller cuts it at a character.
    void set(SinkState new_state, std::string_view text) {
        if (text.size() >= kMessageBytes) text = text.substr(0, kMessageBytes - 1);
        ++version;
        for (size_t i = 0; i < text.size(); ++i)
            message[i].store(text[i], std::memory_order_relaxed);
        message[text.size()].store('\0', std::memory_order_relaxed);
        state = static_cast<int>(new_state);
        ++version;
    }

    // Of readers: what the last completed set() wrote. Gives up (empty) when the writer never
    // rests.
    std::string text() const {
        for (int tries = 0; tries < 1000; ++tries) {
            uint32_t before = version;
            if (before % 2 != 0) continue;
            std::string copy;
            for (size_t i = 0; i < kMessageBytes; ++i) {
                char c = message[i].load(std::memory_order_relaxed);
                if (c == '\0') break;
                copy.push_back(c);
            }
            std::atomic_thread_fence(std::memory_order_acquire);
            if (version == before) return copy;
        }
        return {};
    }
};

// Sinks beyond this many work like all others; they have no line in shared memory.
inline constexpr size_t kSinkSlots = 256;

}  // namespace pgmqtt::pg
