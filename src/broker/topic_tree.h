// A tree of topic levels with a value at each node. Children are found in one hash table for the
// whole tree, keyed by parent and level: a node with a million children costs what a node with one
// does. Nothing here recurses, so depth is only memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"

namespace pgmqtt::broker {

template <class Value>
class TopicTree {
   public:
    using NodeId = uint32_t;
    static constexpr NodeId kRoot = 0;
    static constexpr NodeId kNone = UINT32_MAX;
    // What a level costs, for limits in bytes.
    static constexpr size_t kNodeBytes = 128;

    // `seed` is secret: who chooses topics must not be able to choose collisions.
    explicit TopicTree(uint64_t seed) : seed_(seed), slots_(kFirstSlots) { new_node(); }

    size_t node_count() const { return used_; }

    uint64_t hash_level(base::ByteView level) const { return base::hash(level, seed_); }

    Value& value(NodeId id) { return node(id).value; }
    const Value& value(NodeId id) const { return node(id).value; }
    base::ByteView level(NodeId id) const { return node(id).level; }
    NodeId parent(NodeId id) const { return node(id).parent; }
    NodeId first_child(NodeId id) const { return node(id).first_child; }
    NodeId next_sibling(NodeId id) const { return node(id).next; }

    NodeId find(NodeId parent, base::ByteView level, uint64_t level_hash) const {
        uint32_t tag = tag_of(parent, level_hash);
        size_t mask = slots_.size() - 1;
        for (size_t at = tag & mask; slots_[at].node != kNone; at = (at + 1) & mask) {
            if (slots_[at].tag != tag) continue;
            const Node& found = node(slots_[at].node);
            if (found.parent == parent && found.level == level) return slots_[at].node;
        }
        return kNone;
    }

    NodeId find_or_add(NodeId parent, base::ByteView level) {
        uint64_t level_hash = hash_level(level);
        NodeId id = find(parent, level, level_hash);
        if (id != kNone) return id;
        if (used_ * 2 >= slots_.size()) grow_slots();
        id = new_node();
        Node& added = node(id);
        added.level = level;
        added.tag = tag_of(parent, level_hash);
        added.parent = parent;
        added.next = node(parent).first_child;
        if (added.next != kNone) node(added.next).previous = id;
        node(parent).first_child = id;
        insert_slot(slots_, added.tag, id);
        return id;
    }

    bool is_leaf(NodeId id) const { return node(id).first_child == kNone; }

    // A leaf, never the root. Returns its parent.
    NodeId erase_leaf(NodeId id) {
        Node& gone = node(id);
        erase_slot(gone.tag, id);
        NodeId parent = gone.parent;
        if (gone.previous != kNone) {
            node(gone.previous).next = gone.next;
        } else {
            node(parent).first_child = gone.next;
        }
        if (gone.next != kNone) node(gone.next).previous = gone.previous;
        gone = Node();
        gone.next = free_;
        free_ = id;
        --used_;
        return parent;
    }

   private:
    struct Node {
        std::string level;
        uint32_t tag = 0;
        NodeId parent = kNone;
        NodeId first_child = kNone;
        NodeId next = kNone;      // sibling, or the next free node
        NodeId previous = kNone;  // sibling
        Value value;
    };

    struct Slot {
        uint32_t tag = 0;
        NodeId node = kNone;
    };

    static constexpr size_t kFirstSlots = 64;
    // Nodes come in blocks, so that a big tree never moves in one go.
    static constexpr size_t kBlockBits = 8;
    static constexpr size_t kBlock = size_t{1} << kBlockBits;

    Node& node(NodeId id) { return blocks_[id >> kBlockBits][id & (kBlock - 1)]; }
    const Node& node(NodeId id) const { return blocks_[id >> kBlockBits][id & (kBlock - 1)]; }

    static uint32_t tag_of(NodeId parent, uint64_t level_hash) {
        uint64_t mixed = (level_hash ^ parent) * 0x9E3779B97F4A7C15u;
        return static_cast<uint32_t>(mixed >> 32);
    }

    NodeId new_node() {
        ++used_;
        if (free_ != kNone) {
            NodeId id = free_;
            free_ = node(id).next;
            node(id).next = kNone;
            return id;
        }
        if (ever_used_ == blocks_.size() * kBlock) {
            blocks_.push_back(std::make_unique<Node[]>(kBlock));
        }
        return static_cast<NodeId>(ever_used_++);
    }

    static void insert_slot(std::vector<Slot>& slots, uint32_t tag, NodeId id) {
        size_t mask = slots.size() - 1;
        size_t at = tag & mask;
        while (slots[at].node != kNone) at = (at + 1) & mask;
        slots[at] = {tag, id};
    }

    void grow_slots() {
        std::vector<Slot> bigger(slots_.size() * 2);
        for (const Slot& slot : slots_) {
            if (slot.node != kNone) insert_slot(bigger, slot.tag, slot.node);
        }
        slots_.swap(bigger);
    }

    // Closes the gap by moving up what probed past it: no tombstones.
    void erase_slot(uint32_t tag, NodeId id) {
        size_t mask = slots_.size() - 1;
        size_t gap = tag & mask;
        while (slots_[gap].node != id) gap = (gap + 1) & mask;
        for (size_t at = (gap + 1) & mask; slots_[at].node != kNone; at = (at + 1) & mask) {
            size_t home = slots_[at].tag & mask;
            if (((at - home) & mask) < ((at - gap) & mask)) continue;
            slots_[gap] = slots_[at];
            gap = at;
        }
        slots_[gap] = {};
    }

    uint64_t seed_;
    std::vector<std::unique_ptr<Node[]>> blocks_;
    std::vector<Slot> slots_;
    size_t used_ = 0;
    size_t ever_used_ = 0;
    NodeId free_ = kNone;
};

}  // namespace pgmqtt::broker
