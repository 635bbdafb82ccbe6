// The walk goes by the links between nodes, so all there is to remember is where it stands; the
// node is kept in the tree for that, even when its message is gone.
#include <utility>

#include "broker/retained_store.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {

RetainedCursor::RetainedCursor(RetainedStore& store, base::ByteView filter)
    : store_(&store), filter_(filter) {
    if (filter_ == "#" || filter_.ends_with("/#")) to_the_end_ = true;
    size_t end = 0;
    mqtt::for_each_level(filter_, [&](base::ByteView level) {
        end += level.size();
        level_ends_.push_back(static_cast<uint32_t>(end));
        ++end;  // the slash
    });
    if (to_the_end_) level_ends_.pop_back();
    ++store_->tree_.value(node_).cursors;
}

RetainedCursor::RetainedCursor(RetainedCursor&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      filter_(std::move(other.filter_)),
      level_ends_(std::move(other.level_ends_)),
      to_the_end_(other.to_the_end_),
      node_(other.node_),
      depth_(other.depth_),
      entered_(other.entered_),
      done_(other.done_) {}

RetainedCursor& RetainedCursor::operator=(RetainedCursor&& other) noexcept {
    std::swap(store_, other.store_);
    filter_.swap(other.filter_);
    level_ends_.swap(other.level_ends_);
    std::swap(to_the_end_, other.to_the_end_);
    std::swap(node_, other.node_);
    std::swap(depth_, other.depth_);
    std::swap(entered_, other.entered_);
    std::swap(done_, other.done_);
    return *this;
}

RetainedCursor::~RetainedCursor() {
    if (store_ == nullptr) return;
    --store_->tree_.value(node_).cursors;
    store_->prune(node_);
}

MessagePtr RetainedCursor::next(size_t& budget) {
    while (!done_ && budget > 0) {
        --budget;
        if (std::exchange(entered_, false) && matches_here()) {
            const MessagePtr& message = store_->tree_.value(node_).message;
            if (message) return message;
        }
        if (!descend()) climb();
    }
    return nullptr;
}

base::ByteView RetainedCursor::level(size_t index) const {
    size_t start = index == 0 ? 0 : level_ends_[index - 1] + 1;
    return base::ByteView(filter_).substr(start, level_ends_[index] - start);
}

bool RetainedCursor::is_wildcard(size_t index) const {
    return index >= level_ends_.size() ? to_the_end_ : level(index) == "+";
}

bool RetainedCursor::matches_here() const {
    return to_the_end_ ? depth_ >= level_ends_.size() : depth_ == level_ends_.size();
}

// The node or the next of its siblings that a wildcard in its place matches: at the beginning of a
// topic it leaves out `$...` [MQTT-4.7.2-1].
RetainedCursor::NodeId RetainedCursor::admitted(NodeId node) const {
    const auto& tree = store_->tree_;
    while (node != RetainedStore::Tree::kNone && tree.parent(node) == RetainedStore::Tree::kRoot &&
           mqtt::begins_with_dollar(tree.level(node))) {
        node = tree.next_sibling(node);
    }
    return node;
}

bool RetainedCursor::descend() {
    const auto& tree = store_->tree_;
    NodeId child = RetainedStore::Tree::kNone;
    if (is_wildcard(depth_)) {
        child = admitted(tree.first_child(node_));
    } else if (depth_ < level_ends_.size()) {
        base::ByteView text = level(depth_);
        child = tree.find(node_, text, tree.hash_level(text));
    }
    if (child == RetainedStore::Tree::kNone) return false;
    move_to(child, depth_ + 1);
    entered_ = true;
    return true;
}

// To the next sibling, of this node or of the first above that has one to be looked at.
void RetainedCursor::climb() {
    const auto& tree = store_->tree_;
    while (node_ != RetainedStore::Tree::kRoot) {
        if (is_wildcard(depth_ - 1)) {
            NodeId sibling = admitted(tree.next_sibling(node_));
            if (sibling != RetainedStore::Tree::kNone) {
                move_to(sibling, depth_);
                entered_ = true;
                return;
            }
        }
        move_to(tree.parent(node_), depth_ - 1);
    }
    done_ = true;
}

void RetainedCursor::move_to(NodeId node, size_t depth) {
    NodeId left = std::exchange(node_, node);
    depth_ = depth;
    ++store_->tree_.value(node).cursors;
    --store_->tree_.value(left).cursors;
    store_->prune(left);
}

}  // namespace pgmqtt::broker
