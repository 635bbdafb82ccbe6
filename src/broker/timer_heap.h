// When to look at which connection again. An entry is never moved: what has a later deadline by the
// time it comes up is put in again. So a packet costs a store, not a heap operation.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace pgmqtt::broker {

class TimerHeap {
   public:
    struct Entry {
        base::MonoTime at;
        base::ConnectionId connection;
        friend bool operator>(const Entry& a, const Entry& b) { return a.at > b.at; }
    };

    base::MonoTime next() const { return entries_.empty() ? base::kNever : entries_.front().at; }

    void add(base::MonoTime at, base::ConnectionId connection) {
        entries_.push_back({at, connection});
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
