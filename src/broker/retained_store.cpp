#include "broker/retained_store.h"

#include <algorithm>

#include "mqtt/topic.h"

namespace pgmqtt::broker {

uint64_t RetainedStore::cost(const Message& message) {
    auto levels = std::count(message.topic.begin(), message.topic.end(), '/') + 1;
    return message.bytes() + static_cast<uint64_t>(levels) * Tree::kNodeBytes;
}

RetainedStore::Tree::NodeId RetainedStore::find(base::ByteView topic) const {
    Tree::NodeId node = Tree::kRoot;
    mqtt::for_each_level(topic, [&](base::ByteView level) {
        if (node != Tree::kNone) node = tree_.find(node, level, tree_.hash_level(level));
    });
    return node;
}

bool RetainedStore::fits(const Message& message, const RetainedLimits& limits) const {
    uint64_t count = count_ + 1;
    uint64_t bytes = bytes_ + cost(message);
    Tree::NodeId node = find(message.topic);
    if (node != Tree::kNone && tree_.value(node).message) {
        --count;
        bytes -= cost(*tree_.value(node).message);
    }
    return count <= limits.messages && bytes <= limits.bytes;
}

bool RetainedStore::set(MessagePtr message) {
    Tree::NodeId node = Tree::kRoot;
    mqtt::for_each_level(message->topic,
                         [&](base::ByteView level) { node = tree_.find_or_add(node, level); });
    bool replaces = tree_.value(node).message != nullptr;
    forget(node);
    message->retained_number = ++last_number_;
    ++count_;
    bytes_ += cost(*message);
    charged_ += message->charged();
    expiries_.set(*message, message->expires);
    tree_.value(node).message = std::move(message);
    return replaces;
}

void RetainedStore::forget(Tree::NodeId node) {
    MessagePtr& message = tree_.value(node).message;
    if (!message) return;
    --count_;
    bytes_ -= cost(*message);
    charged_ -= message->charged();
    message->superseded = true;
    expiries_.remove(*message);
    message.reset();
}

bool RetainedStore::erase(base::ByteView topic) {
    Tree::NodeId node = find(topic);
    if (node == Tree::kNone || !tree_.value(node).message) return false;
    forget(node);
    prune(node);
    return true;
}

void RetainedStore::prune(Tree::NodeId node) {
    while (node != Tree::kRoot && tree_.is_leaf(node) && !tree_.value(node).message &&
           tree_.value(node).cursors == 0) {
        node = tree_.erase_leaf(node);
    }
}

void RetainedStore::collect(base::ByteView filter, base::MonoTime now,
                            std::vector<MessagePtr>& found) {
    RetainedCursor cursor(*this, filter);
    while (!cursor.done()) {
        size_t budget = SIZE_MAX;
        MessagePtr message = cursor.next(budget);
        if (message && !message->expired(now)) found.push_back(std::move(message));
    }
}

void RetainedStore::remove_expired(base::MonoTime now, size_t& budget,
                                   std::vector<MessagePtr>& removed) {
    for (; expiries_.next() <= now && budget > 0; --budget) {
        Tree::NodeId node = find(expiries_.front().topic);
        removed.push_back(tree_.value(node).message);
        forget(node);
        prune(node);
    }
}

}  // namespace pgmqtt::broker
