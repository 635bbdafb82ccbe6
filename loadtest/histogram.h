// A log-linear histogram of durations in nanoseconds: what HdrHistogram calls three significant
// digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pgmqtt::loadtest {

// Values below 2048 are exact, above that each octave has 1024 buckets: a percentile is right to
// 0.1 %. Histograms of threads, seconds or rounds are merged bucket by bucket; percentiles are
// never averaged.
class Histogram {
   public:
    // About 73 minutes; what is above is counted as this.
    static constexpr uint64_t kMaxValue = (uint64_t{1} << 42) - 1;

    void record(uint64_t value) { record(value, 1); }
    void record(uint64_t value, uint64_t times);
    void merge(const Histogram& other);
    void clear();

    uint64_t count() const { return count_; }
    uint64_t min() const { return count_ == 0 ? 0 : min_; }
    uint64_t max() const { return max_; }
    double mean() const;
    // The smallest value that `percent` of the values do not exceed, to a bucket's upper end; 0 of
    // an empty histogram.
    uint64_t percentile(double percent) const;

    // Calls visit(uint64_t upper_end, uint64_t count) for each bucket that is not empty, in order.
    template <class Visit>
    void for_each_bucket(Visit visit) const {
        for (size_t i = first_; i < end_; ++i)
            if (buckets_[i] != 0) visit(upper_end(i), buckets_[i]);
    }

   private:
    static size_t bucket_of(uint64_t value);
    static uint64_t upper_end(size_t bucket);

    std::vector<uint64_t> buckets_;  // empty until the first value
    size_t first_ = 0;               // the used range, [first_, end_)
    size_t end_ = 0;
    uint64_t count_ = 0;
    uint64_t min_ = UINT64_MAX;
    uint64_t max_ = 0;
    double sum_ = 0;
};

}  // namespace pgmqtt::loadtest
