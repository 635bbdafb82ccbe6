#include "loadtest/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pgmqtt::loadtest {
namespace {

constexpr unsigned kBits = 10;  // of precision
constexpr uint64_t kExact = uint64_t{1} << (kBits + 1);
constexpr size_t kBuckets = (42 - kBits + 1) << kBits;

}  // namespace

size_t Histogram::bucket_of(uint64_t value) {
    if (value < kExact) return value;
    auto shift = static_cast<unsigned>(std::bit_width(value)) - (kBits + 1);
    return (size_t{shift} << kBits) + (value >> shift);
}

uint64_t Histogram::upper_end(size_t bucket) {
    if (bucket < kExact) return bucket;
    auto shift = static_cast<unsigned>((bucket >> kBits) - 1);
    uint64_t scaled = bucket - (size_t{shift} << kBits);
    return ((scaled + 1) << shift) - 1;
}

void Histogram::record(uint64_t value, uint64_t times) {
    if (times == 0) return;
    value = std::min(value, kMaxValue);
    size_t bucket = bucket_of(value);
    if (buckets_.empty()) [[unlikely]] {
        buckets_.resize(kBuckets);
        first_ = kBuckets;
    }
    buckets_[bucket] += times;
    first_ = std::min(first_, bucket);
    end_ = std::max(end_, bucket + 1);
    count_ += times;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    sum_ += static_cast<double>(value) * static_cast<double>(times);
}

void Histogram::merge(const Histogram& other) {
    if (other.count_ == 0) return;
    if (buckets_.empty()) {
        *this = other;
        return;
    }
    for (size_t i = other.first_; i < other.end_; ++i) buckets_[i] += other.buckets_[i];
    first_ = std::min(first_, other.first_);
    end_ = std::max(end_, other.end_);
    count_ += other.count_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
    sum_ += other.sum_;
}

void Histogram::clear() {
    if (count_ == 0) return;
    std::fill(buckets_.begin() + static_cast<ptrdiff_t>(first_),
              buckets_.begin() + static_cast<ptrdiff_t>(end_), 0);
    first_ = buckets_.size();
    end_ = 0;
    count_ = 0;
    min_ = UINT64_MAX;
    max_ = 0;
    sum_ = 0;
}

double Histogram::mean() const {
    return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

uint64_t Histogram::percentile(double percent) const {
    if (count_ == 0) return 0;
    double exact = std::clamp(percent, 0.0, 100.0) * static_cast<double>(count_) / 100;
    // 99.9 is no binary number: what is a whole rank but for that is not rounded up.
    double wanted = std::ceil(exact - 1e-6);
    auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::max(wanted, 1.0)));
    uint64_t seen = 0;
    for (size_t i = first_; i < end_; ++i) {
        seen += buckets_[i];
        if (seen >= rank) return std::min(upper_end(i), max_);
    }
    return max_;
}

}  // namespace pgmqtt::loadtest
