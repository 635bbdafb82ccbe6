// Which segments of the queue's log are needed, and how much of what is in them. Counts, nothing
// per delivery; per segment and session, so that a session can end with all that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pgmqtt::broker {

class QueueLedger {
   public:
    struct Segment {
        int slot = 0;          // the caller's name for it
        uint64_t last_id = 0;  // no id in this segment or an older one is larger
        uint64_t added = 0;    // deliveries and identifiers that were added in it
        uint64_t live = 0;     // of which are still there
        uint64_t bytes = 0;    // written
    };

    void clear();

    // From now on what is added is in this segment.
    void begin_segment(int slot);
    void wrote(uint64_t bytes);
    void add_id(uint64_t id);        // of a message or an identifier that was written
    void add_count(uint64_t count);  // added before, over or not: see `added`

    // What was there before, when the log is read: without adding to `added`.
    void restore_delivery(uint64_t session_id, uint64_t sequence, uint64_t message_id);
    void restore_received(uint64_t session_id, uint16_t packet_id, uint64_t id);

    // `was`: the message that the delivery referred to before, if it did; only looked at when the
    // delivery is not new.
    void delivery(uint64_t session_id, uint64_t sequence, uint64_t was, uint64_t message_id);
    void delivery_end(uint64_t session_id, uint64_t sequence, uint64_t was);
    void received(uint64_t session_id, uint16_t packet_id, uint64_t id);
    void released(uint64_t session_id, uint16_t packet_id);
    void session_end(uint64_t session_id);

    // The broker needs nothing of ids up to this one.
    void moved(uint64_t up_to);

    // Something did not add up; the counts are to be made anew from the log.
    bool in_doubt() const { return in_doubt_; }

    bool empty() const { return segments_.empty(); }
    const std::deque<Segment>& segments() const { return segments_; }  // oldest first, last: active
    const Segment& active() const { return segments_.back(); }

    // How many of the oldest segments nobody needs. Only from the oldest on: what a younger one
    // says is over may stand in an older one.
    size_t drained() const;
    void drop_oldest(size_t count);

    bool wants_new_segment() const;

    // Up to which id the broker is to move what it needs, so that the log shrinks. 0: no need.
    uint64_t wants_moved() const;

    uint64_t bytes() const;
    uint64_t live_bytes() const;  // estimated
    uint64_t live() const;

   private:
    struct Use {
        uint64_t last_sequence = 0;
        std::vector<std::pair<uint32_t, uint32_t>> live;      // age of a segment, count
        std::vector<std::pair<uint16_t, uint64_t>> received;  // packet identifier, id; sorted
    };

    Use& use_of(uint64_t session_id);
    size_t position_of(uint64_t id) const;
    void count_up(Use& use, uint64_t id);
    void count_down(Use& use, uint64_t id);

    std::deque<Segment> segments_;
    uint32_t oldest_ = 0;  // age of the first one
    std::unordered_map<uint64_t, Use> uses_;
    bool in_doubt_ = false;
};

}  // namespace pgmqtt::broker
