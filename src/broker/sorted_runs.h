// Elements by their sequence, which mostly come in its order but need not: what was moved within a
// log, for instance, stands behind what is younger.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pgmqtt::broker {

// `Element` has a `sequence`, unique among all. Sorted runs, each over twice as long as the next
// when one begins: so there are few of them, and n elements in any order cost O(n log n).
template <class Element>
class SortedRuns {
   public:
    size_t size() const { return size_; }

    // Valid until anything changes. Mostly there are no gaps, so that the first guess is right.
    Element* find(uint64_t sequence) {
        for (std::vector<Element>& run : runs_) {
            if (sequence < run.front().sequence || sequence > run.back().sequence) continue;
            uint64_t guess = sequence - run.front().sequence;
            if (guess < run.size() && run[guess].sequence == sequence) return &run[guess];
            auto position = std::lower_bound(
                run.begin(), run.end(), sequence,
                [](const Element& element, uint64_t wanted) { return element.sequence < wanted; });
            if (position->sequence == sequence) return &*position;
        }
        return nullptr;
    }

    // find() does not find its sequence.
    void add(const Element& element) {
        if (runs_.empty() || runs_.back().back().sequence > element.sequence) begin_run();
        runs_.back().push_back(element);
        ++size_;
    }

    template <class Is>
    void erase_if(Is is) {
        for (std::vector<Element>& run : runs_) size_ -= std::erase_if(run, is);
        std::erase_if(runs_, [](const std::vector<Element>& run) { return run.empty(); });
    }

    // All, by sequence.
    template <class Take>
    void for_each(Take take) {
        while (runs_.size() > 1) merge_last();
        if (runs_.empty()) return;
        for (const Element& element : runs_.front()) take(element);
    }

   private:
    void begin_run() {
        while (runs_.size() > 1 && runs_[runs_.size() - 2].size() < 2 * runs_.back().size())
            merge_last();
        runs_.emplace_back();
    }

    void merge_last() {
        std::vector<Element>& into = runs_[runs_.size() - 2];
        const std::vector<Element>& last = runs_.back();
        auto middle = static_cast<std::ptrdiff_t>(into.size());
        into.insert(into.end(), last.begin(), last.end());
        std::inplace_merge(
            into.begin(), into.begin() + middle, into.end(),
            [](const Element& a, const Element& b) { return a.sequence < b.sequence; });
        runs_.pop_back();
    }

    std::vector<std::vector<Element>> runs_;
    size_t size_ = 0;
};

}  // namespace pgmqtt::broker
