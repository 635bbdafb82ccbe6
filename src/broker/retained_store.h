// The last retained message of each topic [MQTT-3.3.1-5].
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "broker/deadline_heap.h"
#include "broker/message.h"
#include "broker/topic_tree.h"

namespace pgmqtt::broker {

struct RetainedLimits {
    uint64_t messages = UINT64_MAX;
    uint64_t bytes = UINT64_MAX;
};

class RetainedStore {
   public:
    explicit RetainedStore(uint64_t seed) : tree_(seed) {}

    // False, and nothing changes, when a limit forbids it.
    bool fits(const Message& message, const RetainedLimits& limits) const;
    // Replaces what the topic had. False when it had none.
    bool set(MessagePtr message);
    // False when the topic had none.
    bool erase(base::ByteView topic);

    // Appends what matches the filter and has not expired.
    void collect(base::ByteView filter, base::MonoTime now, std::vector<MessagePtr>& found);

    base::MonoTime next_expiry() const { return expiries_.next(); }
    // Takes out what has expired, the first first, and appends it. `budget` falls by one with each.
    void remove_expired(base::MonoTime now, size_t& budget, std::vector<MessagePtr>& removed);

    // The retained_number of the latest message.
    uint64_t last_number() const { return last_number_; }

    uint64_t count() const { return count_; }
    uint64_t bytes() const { return bytes_; }
    // What of Message::charge() is of messages in here.
    uint64_t charged() const { return charged_; }

   private:
    friend class RetainedCursor;

    struct Node {
        MessagePtr message;
        uint32_t cursors = 0;  // that stand here: the node stays for them
    };
    using Tree = TopicTree<Node>;

    // A topic of many levels costs more memory than its bytes, and must count so: 65,535 slashes
    // would otherwise buy megabytes.
    static uint64_t cost(const Message& message);

    Tree::NodeId find(base::ByteView topic) const;
    void forget(Tree::NodeId node);
    void prune(Tree::NodeId node);

    Tree tree_;
    uint64_t last_number_ = 0;
    uint64_t count_ = 0;
    uint64_t bytes_ = 0;
    uint64_t charged_ = 0;
    DeadlineHeap<Message, &Message::expiry_place> expiries_;
};

// A walk over what matches a filter, a piece at a time, while messages come and go. What was there
// when it began and still is, it finds; what came since it may find or not. Ends before the store.
class RetainedCursor {
   public:
    RetainedCursor(RetainedStore& store, base::ByteView filter);
    RetainedCursor(RetainedCursor&& other) noexcept;
    RetainedCursor& operator=(RetainedCursor&& other) noexcept;
    ~RetainedCursor();

    // The next message; null when there is none, or when `budget` is used up: it falls by one with
    // every step. Filters with `+` may look at much that does not match.
    MessagePtr next(size_t& budget);
    bool done() const { return done_; }

   private:
    using NodeId = RetainedStore::Tree::NodeId;

    // Of level number `level` of the topic.
    bool is_wildcard(size_t level) const;
    bool matches_here() const;
    NodeId admitted(NodeId node) const;
    bool descend();
    void climb();
    void move_to(NodeId node, size_t depth);

    RetainedStore* store_;
    std::string filter_;
    std::vector<uint32_t> level_ends_;  // in filter_
    bool to_the_end_ = false;           // the last level is `#`, and not in level_ends_
    NodeId node_ = RetainedStore::Tree::kRoot;
    size_t depth_ = 0;
    bool entered_ = true;  // node_ was not looked at yet
    bool done_ = false;

    base::ByteView level(size_t index) const;
};

}  // namespace pgmqtt::broker
