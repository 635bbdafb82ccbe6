// Who wants messages on a topic. Subscribers are client sessions and sinks; the tree knows them by
// the Subscription they own and never looks behind it.
//
// Shared subscriptions, section 4.8.2: all that name the same `$share/{name}/{filter}` are members
// of one group, and the group stands in the tree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "broker/topic_tree.h"
#include "mqtt/packet.h"

namespace pgmqtt::broker {

struct Session;
struct Sink;
struct ShareGroup;

// One filter of one subscriber, at a fixed address as long as it is in the tree.
struct Subscription {
    Session* session = nullptr;  // one of the two is set, or none for the entry of a group
    Sink* sink = nullptr;
    ShareGroup* group = nullptr;    // whose member it is, or whose entry
    mqtt::Qos qos = mqtt::Qos::k0;  // granted
    bool no_local = false;
    bool retain_as_published = false;
    uint32_t identifier = 0;  // 0: none
    uint32_t levels = 0;      // of its filter

    // Where the tree put it.
    uint32_t node = UINT32_MAX;
    uint32_t position = 0;  // in the node, or among the members
};

struct ShareGroup {
    uint64_t id = 0;     // never used again
    Subscription entry;  // what stands in the tree
    std::vector<Subscription*> members;
    size_t next = 0;  // whose turn it is
};

class SubscriptionTree {
   public:
    explicit SubscriptionTree(uint64_t seed)
        : tree_(seed), groups_(0, base::SeededBytesHash{seed}) {}

    // The filter is valid. With a shared one the subscription joins its group, whose entry is what
    // matches.
    void add(base::ByteView filter, Subscription& subscription);
    void remove(Subscription& subscription);

    // Appends every subscription whose filter matches, in no particular order. Allocates nothing
    // once its scratch memory has grown to what topics and filters need.
    void match(base::ByteView topic, std::vector<Subscription*>& matches);

    // Null when its last member has left.
    ShareGroup* find_group(uint64_t id) const;

    // Whether a filter begins with this level, behind `$share/{name}/` or not.
    bool has_first_level(base::ByteView level) const {
        return tree_.find(Tree::kRoot, level, tree_.hash_level(level)) != Tree::kNone;
    }

    size_t node_count() const { return tree_.node_count(); }

   private:
    struct Node {
        std::vector<Subscription*> subscriptions;
        uint32_t plus = UINT32_MAX;  // the children `+` and `#`, which every topic must try
        uint32_t hash = UINT32_MAX;
    };
    using Tree = TopicTree<Node>;

    struct Level {
        base::ByteView text;
        uint64_t hash;
    };
    struct Step {
        Tree::NodeId node;
        uint32_t level;  // how many levels of the topic led here
    };

    // Splits only as far as the tree is deep along this topic: a topic of 65,535 slashes costs what
    // the filters cost, not what the topic does.
    bool has_level(uint32_t index) { return index < levels_.size() || split_to(index); }
    bool split_to(uint32_t index);
    void follow(Step step, std::vector<Subscription*>& matches);

    void add_to_tree(base::ByteView filter, Subscription& subscription);
    void remove_from_tree(Subscription& subscription);
    void join(base::ByteView filter, Subscription& subscription);
    void leave(Subscription& subscription);

    using Groups = std::unordered_map<std::string, ShareGroup, base::SeededBytesHash,
                                      std::equal_to<>>;  // by `$share/{name}/{filter}`

    Tree tree_;
    Groups groups_;
    std::unordered_map<uint64_t, Groups::value_type*> groups_by_id_;
    uint64_t last_group_ = 0;
    std::vector<Level> levels_;
    std::vector<Step> steps_;
    base::ByteView unsplit_;
    bool all_split_ = false;
};

}  // namespace pgmqtt::broker
