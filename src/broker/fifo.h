// A queue in one block of memory. std::deque costs over half a kilobyte before it holds anything,
// which is too much for what every session has several of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace pgmqtt::broker {

template <class T>
class Fifo {
   public:
    bool empty() const { return head_ == items_.size(); }
    size_t size() const { return items_.size() - head_; }
    T& front() { return items_[head_]; }
    T& back() { return items_.back(); }
    T& operator[](size_t index) { return items_[head_ + index]; }
    const T& operator[](size_t index) const { return items_[head_ + index]; }

    void push_back(T item) { items_.push_back(std::move(item)); }

    void prepend(std::vector<T> items) {
        items.reserve(items.size() + size());
        for (size_t i = head_; i < items_.size(); ++i) items.push_back(std::move(items_[i]));
        items_ = std::move(items);
        head_ = 0;
    }

    void pop_front() {
        items_[head_] = T();  // what it held is released now, not when the block moves up
        ++head_;
        if (head_ == items_.size()) {
            clear();
        } else if (head_ >= kCompactAt && head_ * 2 >= items_.size()) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
            head_ = 0;
        }
    }

    void erase(size_t index) {
        items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(head_ + index));
        if (empty()) clear();
    }

    T take(size_t index) {
        T taken = std::move((*this)[index]);
        if (index == 0) {
            pop_front();
        } else {
            erase(index);
        }
        return taken;
    }

    // Takes out what `drop` says, in order.
    template <class Drop>
    void remove_if(Drop drop) {
        size_t kept = 0;
        for (size_t i = head_; i < items_.size(); ++i) {
            if (drop(items_[i])) continue;
            if (kept != i) items_[kept] = std::move(items_[i]);
            ++kept;
        }
        items_.resize(kept);
        head_ = 0;
        if (items_.empty()) clear();
    }

    void clear() {
        items_.clear();
        head_ = 0;
        if (items_.capacity() * sizeof(T) > kKeepBytes) items_.shrink_to_fit();
    }

    // Of one that is not used for a while.
    void release() {
        if (empty()) std::vector<T>().swap(items_);
    }

    // The first that `is_below` does not say of, in a queue that is sorted so.
    template <class Below>
    size_t find_first(Below is_below) const {
        auto first = items_.begin() + static_cast<std::ptrdiff_t>(head_);
        return static_cast<size_t>(std::partition_point(first, items_.end(), is_below) - first);
    }

   private:
    static constexpr size_t kCompactAt = 64;
    static constexpr size_t kKeepBytes = 32 << 10;

    std::vector<T> items_;
    size_t head_ = 0;  // items before it are gone
};

}  // namespace pgmqtt::broker
