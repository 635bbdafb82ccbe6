// The last retained message of each topic [MQTT-3.3.1-5].
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

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
    // Replaces what the topic had.
    void set(MessagePtr message);
    // False when the topic had none.
    bool erase(base::ByteView topic);

    // Appends what matches the filter and has not expired.
    void collect(base::ByteView filter, base::MonoTime now, std::vector<MessagePtr>& found) const;

    // The earliest moment at which remove_expired() may find something.
    base::MonoTime next_expiry() const;
    // Takes out what has expired and appends it.
    void remove_expired(base::MonoTime now, std::vector<MessagePtr>& removed);

    // The retained_number of the latest message.
    uint64_t last_number() const { return last_number_; }

    uint64_t count() const { return count_; }
    uint64_t bytes() const { return bytes_; }
    // What of Message::charge() is of messages in here.
    uint64_t charged() const { return charged_; }

   private:
    struct Node {
        MessagePtr message;
    };
    using Tree = TopicTree<Node>;

    // One that is superseded stays here until its time comes; it holds no message alive.
    struct Expiry {
        base::MonoTime at;
        std::weak_ptr<Message> message;
        friend bool operator>(const Expiry& a, const Expiry& b) { return a.at > b.at; }
    };

    // A topic of many levels costs more memory than its bytes, and must count so: 65,535 slashes
    // would otherwise buy megabytes.
    static uint64_t cost(const Message& message);

    Tree::NodeId find(base::ByteView topic) const;
    void forget(Tree::NodeId node);
    void collect_below(Tree::NodeId top, bool skip_dollar, base::MonoTime now,
                       std::vector<MessagePtr>& found) const;

    Tree tree_;
    uint64_t last_number_ = 0;
    uint64_t count_ = 0;
    uint64_t bytes_ = 0;
    uint64_t charged_ = 0;
    std::vector<Expiry> expiries_;  // a heap, earliest first
};

}  // namespace pgmqtt::broker
