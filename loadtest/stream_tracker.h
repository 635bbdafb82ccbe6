// Exactly which messages of one publisher one subscriber had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace pgmqtt::loadtest {

enum class Arrival : uint8_t { kInOrder, kLate, kDuplicate };

// In-order traffic costs one comparison and no memory. Out of order, the gaps are kept: a map of at
// most kMaxGaps runs of missing numbers. Beyond that the oldest gap is given up as lost, and should
// one of its messages come yet, it counts as duplicated: `gave_up()` says so.
class StreamTracker {
   public:
    static constexpr size_t kMaxGaps = 65536;

    Arrival arrived(uint64_t sequence) {
        if (sequence == next_) [[likely]] {
            ++next_;
            return Arrival::kInOrder;
        }
        return out_of_order(sequence);
    }

    // Of the numbers 0..sent-1.
    uint64_t lost(uint64_t sent) const;
    uint64_t next() const { return next_; }
    bool gave_up() const { return given_up_ != 0; }

   private:
    Arrival out_of_order(uint64_t sequence);

    uint64_t next_ = 0;
    uint64_t missing_ = 0;  // sum of the gaps
    uint64_t given_up_ = 0;
    std::map<uint64_t, uint64_t> gaps_;  // first missing -> one after the last
};

}  // namespace pgmqtt::loadtest
