#include "broker/queue_ledger.h"

#include <algorithm>

namespace pgmqtt::broker {
namespace {

// A segment is large enough that truncating it (tens of milliseconds) costs little per message, and
// small enough that four of them hold what is needed.
constexpr uint64_t kLeastSegment = 16 << 20;
constexpr uint64_t kSegmentsOfLive = 4;

// So much of the log may be over before it is worth moving the rest.
constexpr uint64_t kGarbage = 64 << 20;

auto packet_position(std::vector<std::pair<uint16_t, uint64_t>>& received, uint16_t packet_id) {
    return std::lower_bound(
        received.begin(), received.end(), packet_id,
        [](const auto& known, uint16_t wanted) { return known.first < wanted; });
}

uint64_t live_bytes_of(const QueueLedger::Segment& segment) {
    if (segment.live >= segment.added) return segment.live == 0 ? 0 : segment.bytes;
    double share = static_cast<double>(segment.live) / static_cast<double>(segment.added);
    return static_cast<uint64_t>(share * static_cast<double>(segment.bytes));
}

}  // namespace

void QueueLedger::clear() {
    segments_.clear();
    uses_.clear();
    in_doubt_ = false;
}

void QueueLedger::begin_segment(int slot) {
    uint64_t last_id = segments_.empty() ? 0 : segments_.back().last_id;
    segments_.push_back({.slot = slot, .last_id = last_id});
}

void QueueLedger::wrote(uint64_t bytes) {
    segments_.back().bytes += bytes;
}

void QueueLedger::add_id(uint64_t id) {
    segments_.back().last_id = std::max(segments_.back().last_id, id);
}

void QueueLedger::add_count(uint64_t count) {
    segments_.back().added += count;
}

QueueLedger::Use& QueueLedger::use_of(uint64_t session_id) {
    return uses_[session_id];
}

// An id is counted in the oldest segment that may hold it. When a batch came again it may have been
// written once more in a younger one, which then stays at least as long.
size_t QueueLedger::position_of(uint64_t id) const {
    for (size_t i = 0; i + 1 < segments_.size(); ++i)
        if (id <= segments_[i].last_id) return i;
    return segments_.size() - 1;
}

void QueueLedger::count_up(Use& use, uint64_t id) {
    if (segments_.empty()) return;
    size_t position = position_of(id);
    uint32_t age = oldest_ + static_cast<uint32_t>(position);
    ++segments_[position].live;
    for (auto& [known, count] : use.live)
        if (known == age) return static_cast<void>(++count);
    std::erase_if(use.live, [this](const auto& old) { return old.first < oldest_; });
    use.live.emplace_back(age, 1);
}

void QueueLedger::count_down(Use& use, uint64_t id) {
    if (segments_.empty()) return;
    size_t position = position_of(id);
    uint32_t age = oldest_ + static_cast<uint32_t>(position);
    Segment& segment = segments_[position];
    for (auto& [known, count] : use.live) {
        if (known != age || count == 0) continue;
        --count;
        if (segment.live > 0) --segment.live;
        return;
    }
    in_doubt_ = true;
}

void QueueLedger::restore_delivery(uint64_t session_id, uint64_t sequence, uint64_t message_id) {
    Use& use = use_of(session_id);
    use.last_sequence = std::max(use.last_sequence, sequence);
    count_up(use, message_id);
}

void QueueLedger::restore_received(uint64_t session_id, uint16_t packet_id, uint64_t id) {
    Use& use = use_of(session_id);
    use.received.insert(packet_position(use.received, packet_id), {packet_id, id});
    count_up(use, id);
}

void QueueLedger::delivery(uint64_t session_id, uint64_t sequence, uint64_t was,
                           uint64_t message_id) {
    Use& use = use_of(session_id);
    if (sequence > use.last_sequence) {
        use.last_sequence = sequence;
        if (!segments_.empty()) ++segments_.back().added;
        return count_up(use, message_id);
    }
    if (was == message_id) return;
    if (!segments_.empty()) ++segments_.back().added;
    count_down(use, was);
    count_up(use, message_id);
}

void QueueLedger::delivery_end(uint64_t session_id, uint64_t sequence, uint64_t was) {
    Use& use = use_of(session_id);
    if (sequence > use.last_sequence) {  // it was never here
        use.last_sequence = sequence;
        return;
    }
    count_down(use, was);
}

void QueueLedger::received(uint64_t session_id, uint16_t packet_id, uint64_t id) {
    Use& use = use_of(session_id);
    auto position = packet_position(use.received, packet_id);
    if (position != use.received.end() && position->first == packet_id) {
        count_down(use, position->second);
        position->second = id;
    } else {
        use.received.insert(position, {packet_id, id});
    }
    if (!segments_.empty()) ++segments_.back().added;
    count_up(use, id);
}

void QueueLedger::released(uint64_t session_id, uint16_t packet_id) {
    auto found = uses_.find(session_id);
    if (found == uses_.end()) return;
    Use& use = found->second;
    auto position = packet_position(use.received, packet_id);
    if (position == use.received.end() || position->first != packet_id) return;
    count_down(use, position->second);
    use.received.erase(position);
}

void QueueLedger::session_end(uint64_t session_id) {
    auto found = uses_.find(session_id);
    if (found == uses_.end()) return;
    for (auto [age, count] : found->second.live) {
        if (age < oldest_) continue;
        Segment& segment = segments_[age - oldest_];
        segment.live -= std::min<uint64_t>(segment.live, count);
    }
    uses_.erase(found);
}

void QueueLedger::moved(uint64_t up_to) {
    for (size_t i = 0; i + 1 < segments_.size() && segments_[i].last_id <= up_to; ++i)
        segments_[i].live = 0;
}

size_t QueueLedger::drained() const {
    size_t count = 0;
    while (count + 1 < segments_.size() && segments_[count].live == 0) ++count;
    return count;
}

void QueueLedger::drop_oldest(size_t count) {
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(count));
    oldest_ += static_cast<uint32_t>(count);
    // Also of sessions whose end nobody tells, since they are not stored. Who has nothing begins
    // anew.
    std::erase_if(uses_, [this](const auto& entry) {
        const auto& live = entry.second.live;
        bool idle = std::all_of(live.begin(), live.end(), [this](const auto& part) {
            return part.first < oldest_ || part.second == 0;
        });
        return idle && entry.second.received.empty();
    });
}

bool QueueLedger::wants_new_segment() const {
    if (segments_.empty()) return true;
    return active().bytes >= std::max(kLeastSegment, live_bytes() / kSegmentsOfLive);
}

uint64_t QueueLedger::wants_moved() const {
    if (segments_.size() < 2 || segments_.front().live == 0) return 0;
    uint64_t live = live_bytes();
    if (bytes() - live <= std::max(kGarbage, live)) return 0;
    return segments_.front().last_id;
}

uint64_t QueueLedger::bytes() const {
    uint64_t sum = 0;
    for (const Segment& segment : segments_) sum += segment.bytes;
    return sum;
}

uint64_t QueueLedger::live_bytes() const {
    uint64_t sum = 0;
    for (const Segment& segment : segments_) sum += live_bytes_of(segment);
    return sum;
}

uint64_t QueueLedger::live() const {
    uint64_t sum = 0;
    for (const Segment& segment : segments_) sum += segment.live;
    return sum;
}

}  // namespace pgmqtt::broker
