#include "broker/retained_store.h"

#include <algorithm>
#include <functional>

#include "mqtt/topic.h"

namespace pgmqtt::broker {

namespace {

void take_if_alive(const MessagePtr& message, base::MonoTime now, std::vector<MessagePtr>& found) {
    if (message && !message->expired(now)) found.push_back(message);
}

}  // namespace

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

void RetainedStore::set(MessagePtr message) {
    Tree::NodeId node = Tree::kRoot;
    mqtt::for_each_level(message->topic,
                         [&](base::ByteView level) { node = tree_.find_or_add(node, level); });
    forget(node);
    message->retained_number = ++last_number_;
    ++count_;
    bytes_ += cost(*message);
    charged_ += message->charged();
    if (message->expires != base::kNever) {
        expiries_.push_back({message->expires, message});
        std::push_heap(expiries_.begin(), expiries_.end(), std::greater<>());
    }
    tree_.value(node).message = std::move(message);
}

void RetainedStore::forget(Tree::NodeId node) {
    MessagePtr& message = tree_.value(node).message;
    if (!message) return;
    --count_;
    bytes_ -= cost(*message);
    charged_ -= message->charged();
    message->superseded = true;
    message.reset();
}

bool RetainedStore::erase(base::ByteView topic) {
    Tree::NodeId node = find(topic);
    if (node == Tree::kNone || !tree_.value(node).message) return false;
    forget(node);
    while (node != Tree::kRoot && tree_.is_leaf(node) && !tree_.value(node).message) {
        node = tree_.erase_leaf(node);
    }
    return true;
}

// Every message under `top`, itself included. Climbs back by the parent links: no stack, whatever
// the depth.
void RetainedStore::collect_below(Tree::NodeId top, bool skip_dollar, base::MonoTime now,
                                  std::vector<MessagePtr>& found) const {
    take_if_alive(tree_.value(top).message, now, found);
    Tree::NodeId node = tree_.first_child(top);
    while (node != Tree::kNone) {
        bool skip = skip_dollar && tree_.parent(node) == Tree::kRoot &&
                    mqtt::begins_with_dollar(tree_.level(node));
        if (!skip) {
            take_if_alive(tree_.value(node).message, now, found);
            if (!tree_.is_leaf(node)) {
                node = tree_.first_child(node);
                continue;
            }
        }
        while (node != top && tree_.next_sibling(node) == Tree::kNone) node = tree_.parent(node);
        if (node == top) return;
        node = tree_.next_sibling(node);
    }
}

void RetainedStore::collect(base::ByteView filter, base::MonoTime now,
                            std::vector<MessagePtr>& found) const {
    struct Step {
        Tree::NodeId node;
        size_t level;
    };
    std::vector<base::ByteView> levels;
    mqtt::for_each_level(filter, [&](base::ByteView level) { levels.push_back(level); });

    std::vector<Step> steps = {{Tree::kRoot, 0}};
    while (!steps.empty()) {
        Step step = steps.back();
        steps.pop_back();
        if (step.level == levels.size()) {
            take_if_alive(tree_.value(step.node).message, now, found);
            continue;
        }
        base::ByteView level = levels[step.level];
        // A leading wildcard does not match `$...` [MQTT-4.7.2-1].
        bool skip_dollar = step.level == 0;
        if (level == "#") {
            collect_below(step.node, skip_dollar, now, found);
        } else if (level == "+") {
            for (Tree::NodeId child = tree_.first_child(step.node); child != Tree::kNone;
                 child = tree_.next_sibling(child)) {
                if (skip_dollar && mqtt::begins_with_dollar(tree_.level(child))) continue;
                steps.push_back({child, step.level + 1});
            }
        } else {
            Tree::NodeId child = tree_.find(step.node, level, tree_.hash_level(level));
            if (child != Tree::kNone) steps.push_back({child, step.level + 1});
        }
    }
}

base::MonoTime RetainedStore::next_expiry() const {
    return expiries_.empty() ? base::kNever : expiries_.front().at;
}

void RetainedStore::remove_expired(base::MonoTime now, std::vector<MessagePtr>& removed) {
    while (!expiries_.empty() && expiries_.front().at <= now) {
        std::pop_heap(expiries_.begin(), expiries_.end(), std::greater<>());
        MessagePtr message = expiries_.back().message.lock();
        expiries_.pop_back();
        if (!message || message->superseded) continue;
        erase(message->topic);
        removed.push_back(std::move(message));
    }
}

}  // namespace pgmqtt::broker
