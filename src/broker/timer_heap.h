// When to look at which connection, or session, again. An entry is never moved: what has a later
// deadline by the time it comes up is put in again. So a packet costs a store, not a heap
// operation.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "base/time.h"

namespace pgmqtt::broker {

template <class Key>
class TimerHeap {
   public:
    struct Entry {
        base::MonoTime at;
        Key key;
        friend bool operator>(const Entry& a, const Entry& b) { return a.at > b.at; }
    };

    base::MonoTime next() const { return entries_.empty() ? base::kNever : entries_.front().at; }

    void add(base::MonoTime at, Key key) {
        entries_.push_back({at, key});
        std::push_heap(entries_.begin(), entries_.end(), std::greater<>());
    }

    Entry pop() {
        std::pop_heap(entries_.begin(), entries_.end(), std::greater<>());
        Entry entry = entries_.back();
        entries_.pop_back();
        return entry;
    }

   private:
    std::vector<Entry> entries_;
};

}  // namespace pgmqtt::broker
