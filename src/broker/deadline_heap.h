// Who is due first. An item stands in here at most once, and knows where: it leaves with what it is
// of, or gets another deadline, at any time, and nothing that is over is left behind.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace pgmqtt::broker {

// Not in the heap.
inline constexpr uint32_t kNoPlace = UINT32_MAX;

// `kPlace` is the member of an item that says where it stands; items do not move while they are in.
template <class Item, uint32_t Item::*kPlace>
class DeadlineHeap {
   public:
    bool empty() const { return entries_.empty(); }
    size_t size() const { return entries_.size(); }
    base::MonoTime next() const { return empty() ? base::kNever : entries_.front().at; }
    Item& front() { return *entries_.front().item; }

    base::MonoTime deadline(const Item& item) const {
        return item.*kPlace == kNoPlace ? base::kNever : entries_[item.*kPlace].at;
    }

    // In place of the one that it has; kNever: it leaves.
    void set(Item& item, base::MonoTime at) {
        if (at == base::kNever) return remove(item);
        if (item.*kPlace == kNoPlace) {
            entries_.push_back({at, &item});
            item.*kPlace = static_cast<uint32_t>(entries_.size() - 1);
            return rise(item.*kPlace);
        }
        move({at, &item}, item.*kPlace);
    }

    // Does nothing when it is not in.
    void remove(Item& item) {
        uint32_t place = item.*kPlace;
        if (place == kNoPlace) return;
        item.*kPlace = kNoPlace;
        Entry last = entries_.back();
        entries_.pop_back();
        if (last.item != &item) move(last, place);
    }

   private:
    struct Entry {
        base::MonoTime at;
        Item* item;
    };

    void put(const Entry& entry, size_t place) {
        entries_[place] = entry;
        entry.item->*kPlace = static_cast<uint32_t>(place);
    }

    void move(const Entry& entry, size_t place) {
        put(entry, place);
        rise(place);
        sink(entry.item->*kPlace);
    }

    void rise(size_t place) {
        Entry entry = entries_[place];
        for (; place > 0 && entry.at < entries_[(place - 1) / 2].at; place = (place - 1) / 2) {
            put(entries_[(place - 1) / 2], place);
        }
        put(entry, place);
    }

    void sink(size_t place) {
        Entry entry = entries_[place];
        for (;;) {
            size_t child = 2 * place + 1;
            if (child >= entries_.size()) break;
            if (child + 1 < entries_.size() && entries_[child + 1].at < entries_[child].at) ++child;
            if (entries_[child].at >= entry.at) break;
            put(entries_[child], place);
            place = child;
        }
        put(entry, place);
    }

    std::vector<Entry> entries_;
};

}  // namespace pgmqtt::broker
