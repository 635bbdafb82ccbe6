// A queue whose items may expire while they wait. It is kept in blocks, each of which knows the
// earliest deadline in it: what has expired is found in the blocks that are due, and as long as
// nothing has, nothing is looked at. A queue of a million items never moves as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "broker/deadline_heap.h"
#include "broker/fifo.h"

namespace pgmqtt::broker {

template <class T>
class BlockQueue {
   public:
    static constexpr size_t kBlock = 256;  // items

    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    size_t block_count() const { return blocks_.size(); }

    // Not of an empty queue.
    T& front() { return blocks_.front()->items.front(); }
    T& back() { return blocks_.back()->items.back(); }

    // Of one near the front: it costs as much as there are blocks before it.
    T& operator[](size_t index) {
        size_t block = block_of(index);
        return blocks_[block]->items[index];
    }

    // kNever: it stays until it is taken.
    void push_back(T item, base::MonoTime deadline) {
        if (blocks_.empty() || blocks_.back()->items.size() == kBlock) {
            blocks_.push_back(std::make_unique<Block>());
        }
        Block& block = *blocks_.back();
        block.items.push_back(std::move(item));
        ++size_;
        bring_forward(block, deadline);
    }

    // In their order, before all others. `deadline_of` says when one of them expires.
    template <class DeadlineOf>
    void prepend(std::vector<T> items, DeadlineOf deadline_of) {
        if (items.empty()) return;
        size_ += items.size();
        if (size_ > items.size() && blocks_.front()->items.size() + items.size() <= kBlock) {
            Block& block = *blocks_.front();
            for (const T& item : items) bring_forward(block, deadline_of(item));
            return block.items.prepend(std::move(items));
        }
        std::vector<std::unique_ptr<Block>> before;
        for (T& item : items) {
            if (before.empty() || before.back()->items.size() == kBlock) {
                before.push_back(std::make_unique<Block>());
            }
            bring_forward(*before.back(), deadline_of(item));
            before.back()->items.push_back(std::move(item));
        }
        if (size_ == items.size()) blocks_.clear();  // the empty one that was kept
        blocks_.prepend(std::move(before));
    }

    T take_front() { return take_of(0, 0); }

    // See operator[].
    T take(size_t index) {
        size_t block = block_of(index);
        return take_of(block, index);
    }

    // All of them, in their order; they may be changed, but not when they expire.
    template <class Visit>
    void for_each(Visit visit) {
        for (size_t i = 0; i < blocks_.size(); ++i) {
            Fifo<T>& items = blocks_[i]->items;
            for (size_t j = 0; j < items.size(); ++j) visit(items[j]);
        }
    }

    // Those of which `is_below` is true, which are the first in this queue, the last of them first,
    // as long as `visit` returns true. False: it did not.
    template <class Below, class Visit>
    bool for_each_below(Below is_below, Visit visit) {
        for (size_t i = count_blocks(is_below); i > 0; --i) {
            Fifo<T>& items = blocks_[i - 1]->items;
            for (size_t j = items.find_first(is_below); j > 0; --j) {
                if (!visit(items[j - 1])) return false;
            }
        }
        return true;
    }

    // The first that `is_below` does not say of, in a queue that is sorted so; null: none.
    template <class Below>
    T* find_first(Below is_below) {
        size_t i = count_blocks(is_below);
        if (i > 0) {
            Fifo<T>& items = blocks_[i - 1]->items;
            size_t j = items.find_first(is_below);
            if (j < items.size()) return &items[j];
        }
        return !empty() && i < blocks_.size() ? &blocks_[i]->items.front() : nullptr;
    }

    // Its index; the size of the queue: none. For take(), which costs as much.
    template <class Below>
    size_t find_index(Below is_below) {
        size_t block = count_blocks(is_below);
        if (block == 0) return 0;
        size_t index = blocks_[block - 1]->items.find_first(is_below);
        for (size_t i = 0; i + 1 < block; ++i) index += blocks_[i]->items.size();
        return index;
    }

    // When expire() may find something: not later than the first deadline, and earlier only when
    // the item that had one has been taken.
    base::MonoTime next_expiry() const { return due_.next(); }

    // Takes out what expired, as `deadline_of` says, and gives it to `drop`. `budget` falls by one
    // for each item that is looked at; when it is used up the next call goes on.
    template <class DeadlineOf, class Drop>
    void expire(base::MonoTime now, size_t& budget, DeadlineOf deadline_of, Drop drop) {
        bool emptied = false;
        while (due_.next() <= now && budget > 0) {
            Block& block = due_.front();
            size_t before = block.items.size();
            budget -= std::min(budget, before);
            base::MonoTime next = base::kNever;
            block.items.remove_if([&](T& item) {
                base::MonoTime deadline = deadline_of(item);
                if (deadline <= now) {
                    drop(item);
                    return true;
                }
                next = std::min(next, deadline);
                return false;
            });
            size_ -= before - block.items.size();
            due_.set(block, next);
            emptied = emptied || block.items.empty();
        }
        if (emptied) remove_empty();
        // At least half full on average: what is looked at, and kept, is in proportion.
        constexpr size_t kFew = 4;
        if (blocks_.size() > 2 * (size_ / kBlock) + kFew) merge();
    }

    // All of them, in their order; nothing is left.
    std::vector<T> take_all() {
        std::vector<T> items;
        items.reserve(size_);
        for_each([&](T& item) { items.push_back(std::move(item)); });
        *this = BlockQueue();
        return items;
    }

    // Of one that is not used for a while.
    void release() {
        if (empty()) *this = BlockQueue();
    }

   private:
    struct Block {
        Fifo<T> items;
        uint32_t place = kNoPlace;
    };

    void bring_forward(Block& block, base::MonoTime deadline) {
        if (deadline < due_.deadline(block)) due_.set(block, deadline);
    }

    // Makes of `index` one within the block.
    size_t block_of(size_t& index) const {
        size_t block = 0;
        while (index >= blocks_[block]->items.size()) index -= blocks_[block++]->items.size();
        return block;
    }

    T take_of(size_t at, size_t index) {
        Block& block = *blocks_[at];
        T taken = block.items.take(index);
        --size_;
        if (block.items.empty()) {
            due_.remove(block);
            if (blocks_.size() > 1) blocks_.take(at);
        }
        return taken;
    }

    // How many blocks begin with an item that `is_below` says of.
    template <class Below>
    size_t count_blocks(Below is_below) const {
        if (empty()) return 0;
        return blocks_.find_first(
            [&](const std::unique_ptr<Block>& block) { return is_below(block->items.front()); });
    }

    // Those that expire() or merge() left empty, which do not stand in due_.
    void remove_empty() {
        blocks_.remove_if([](const std::unique_ptr<Block>& block) { return block->items.empty(); });
    }

    // Neighbours that fit into one block.
    void merge() {
        size_t last = 0;
        for (size_t i = 1; i < blocks_.size(); ++i) {
            Block& into = *blocks_[last];
            Block& from = *blocks_[i];
            if (into.items.size() + from.items.size() > kBlock) {
                std::swap(blocks_[++last], blocks_[i]);
                continue;
            }
            bring_forward(into, due_.deadline(from));
            due_.remove(from);
            while (!from.items.empty()) into.items.push_back(from.items.take(0));
        }
        remove_empty();
    }

    // None is empty, but for one in an empty queue: for what comes next.
    Fifo<std::unique_ptr<Block>> blocks_;
    size_t size_ = 0;
    DeadlineHeap<Block, &Block::place> due_;
};

}  // namespace pgmqtt::broker
