#include "loadtest/stream_tracker.h"

namespace pgmqtt::loadtest {

Arrival StreamTracker::out_of_order(uint64_t sequence) {
    if (sequence > next_) {
        if (gaps_.size() == kMaxGaps) {
            auto oldest = gaps_.begin();
            missing_ -= oldest->second - oldest->first;
            given_up_ += oldest->second - oldest->first;
            gaps_.erase(oldest);
        }
        gaps_.emplace_hint(gaps_.end(), next_, sequence);
        missing_ += sequence - next_;
        next_ = sequence + 1;
        return Arrival::kInOrder;
    }
    auto gap = gaps_.upper_bound(sequence);
    if (gap == gaps_.begin()) return Arrival::kDuplicate;
    --gap;
    auto [first, end] = *gap;
    if (sequence >= end) return Arrival::kDuplicate;
    if (sequence == first) {
        gap = gaps_.erase(gap);
    } else {
        gap->second = sequence;
    }
    if (sequence + 1 < end) gaps_.emplace(sequence + 1, end);
    --missing_;
    return Arrival::kLate;
}

uint64_t StreamTracker::lost(uint64_t sent) const {
    return missing_ + given_up_ + (sent > next_ ? sent - next_ : 0);
}

}  // namespace pgmqtt::loadtest
