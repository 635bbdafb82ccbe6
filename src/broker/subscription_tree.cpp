#include "broker/subscription_tree.h"

#include "mqtt/topic.h"

namespace pgmqtt::broker {

void SubscriptionTree::add(base::ByteView filter, Subscription& subscription) {
    if (mqtt::is_shared_filter(filter)) {
        join(filter, subscription);
    } else {
        add_to_tree(filter, subscription);
    }
}

void SubscriptionTree::remove(Subscription& subscription) {
    if (subscription.group != nullptr) {
        leave(subscription);
    } else {
        remove_from_tree(subscription);
    }
}

void SubscriptionTree::join(base::ByteView filter, Subscription& subscription) {
    auto found = groups_.find(filter);
    if (found == groups_.end()) {
        found = groups_.try_emplace(std::string(filter)).first;
        ShareGroup& added = found->second;
        added.id = ++last_group_;
        added.entry.group = &added;
        groups_by_id_.emplace(added.id, &*found);
        add_to_tree(mqtt::parse_shared_filter(filter)->filter, added.entry);
    }
    constexpr uint32_t kPrefixLevels = 2;  // `$share` and the name
    ShareGroup& group = found->second;
    subscription.group = &group;
    subscription.levels = group.entry.levels + kPrefixLevels;
    subscription.position = static_cast<uint32_t>(group.members.size());
    group.members.push_back(&subscription);
}

void SubscriptionTree::leave(Subscription& subscription) {
    ShareGroup& group = *subscription.group;
    Subscription* last = group.members.back();
    group.members[subscription.position] = last;
    last->position = subscription.position;
    group.members.pop_back();
    subscription.group = nullptr;
    if (!group.members.empty()) return;
    remove_from_tree(group.entry);
    auto by_id = groups_by_id_.find(group.id);
    groups_.erase(groups_.find(by_id->second->first));
    groups_by_id_.erase(by_id);
}

ShareGroup* SubscriptionTree::find_group(uint64_t id) const {
    auto found = groups_by_id_.find(id);
    return found != groups_by_id_.end() ? &found->second->second : nullptr;
}

void SubscriptionTree::add_to_tree(base::ByteView filter, Subscription& subscription) {
    Tree::NodeId node = Tree::kRoot;
    uint32_t levels = 0;
    mqtt::for_each_level(filter, [&](base::ByteView level) {
        Tree::NodeId child = tree_.find_or_add(node, level);
        if (level == "+") tree_.value(node).plus = child;
        if (level == "#") tree_.value(node).hash = child;
        node = child;
        ++levels;
    });
    std::vector<Subscription*>& subscriptions = tree_.value(node).subscriptions;
    subscription.levels = levels;
    subscription.node = node;
    subscription.position = static_cast<uint32_t>(subscriptions.size());
    subscriptions.push_back(&subscription);
}

void SubscriptionTree::remove_from_tree(Subscription& subscription) {
    Tree::NodeId node = subscription.node;
    std::vector<Subscription*>& subscriptions = tree_.value(node).subscriptions;
    Subscription* last = subscriptions.back();
    subscriptions[subscription.position] = last;
    last->position = subscription.position;
    subscriptions.pop_back();
    subscription.node = Tree::kNone;

    while (node != Tree::kRoot && tree_.is_leaf(node) && tree_.value(node).subscriptions.empty()) {
        Node& parent = tree_.value(tree_.parent(node));
        if (parent.plus == node) parent.plus = Tree::kNone;
        if (parent.hash == node) parent.hash = Tree::kNone;
        node = tree_.erase_leaf(node);
    }
}

bool SubscriptionTree::split_to(uint32_t index) {
    while (levels_.size() <= index) {
        if (all_split_) return false;
        size_t slash = unsplit_.find('/');
        base::ByteView level = unsplit_.substr(0, slash);
        levels_.push_back({level, tree_.hash_level(level)});
        if (slash == base::ByteView::npos) {
            all_split_ = true;
        } else {
            unsplit_.remove_prefix(slash + 1);
        }
    }
    return true;
}

void SubscriptionTree::match(base::ByteView topic, std::vector<Subscription*>& matches) {
    levels_.clear();
    unsplit_ = topic;
    all_split_ = false;

    steps_.clear();
    follow({Tree::kRoot, 0}, matches);
    while (!steps_.empty()) {
        Step step = steps_.back();
        steps_.pop_back();
        follow(step, matches);
    }
}

// Down the levels as they are written; where a `+` branches off, that is left in steps_ for later.
void SubscriptionTree::follow(Step step, std::vector<Subscription*>& matches) {
    auto take = [&](Tree::NodeId id) {
        const std::vector<Subscription*>& found = tree_.value(id).subscriptions;
        matches.insert(matches.end(), found.begin(), found.end());
    };
    while (step.node != Tree::kNone) {
        const Node& node = tree_.value(step.node);
        bool more = has_level(step.level);
        // A filter that begins with a wildcard does not match `$...` [MQTT-4.7.2-1].
        bool wildcards = step.level > 0 || !mqtt::begins_with_dollar(levels_[0].text);
        // `a/#` matches `a` too: section 4.7.1.2.
        if (node.hash != Tree::kNone && wildcards) take(node.hash);
        if (!more) return take(step.node);
        if (node.plus != Tree::kNone && wildcards) steps_.push_back({node.plus, step.level + 1});
        if (tree_.is_leaf(step.node)) return;
        const Level& level = levels_[step.level];
        step = {tree_.find(step.node, level.text, level.hash), step.level + 1};
    }
}

}  // namespace pgmqtt::broker
