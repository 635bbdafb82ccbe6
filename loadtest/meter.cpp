#include "loadtest/meter.h"

#include <algorithm>

namespace pgmqtt::loadtest {

void add(Counters& sum, const Counters& more) {
    sum.offered += more.offered;
    sum.shed += more.shed;
    sum.sent += more.sent;
    sum.acknowledged += more.acknowledged;
    sum.expected += more.expected;
    sum.received += more.received;
    sum.duplicated += more.duplicated;
    sum.lost += more.lost;
    sum.misordered += more.misordered;
    sum.corrupt += more.corrupt;
    sum.failed += more.failed;
}

void SecondsTable::deliver(size_t second, double t, const Counters& from, Meter& meter) {
    std::lock_guard guard(mutex_);
    if (second < first_open_) return;
    if (seconds_.size() <= second) {
        seconds_.resize(second + 1);
        open_.resize(second + 1 - first_open_);
    }
    Second& row = seconds_[second];
    row.t = std::max(row.t, t);
    row.sent += meter.counters.sent - from.sent;
    row.acknowledged += meter.counters.acknowledged - from.acknowledged;
    row.received += meter.counters.received - from.received;

    // Where nothing is received, what the acknowledgements took.
    Histogram& shown = meter.end_to_end.count() != 0 ? meter.end_to_end : meter.acknowledge;
    Open& open = open_[second - first_open_];
    open.histogram.merge(shown);
    ++open.delivered;
    row.p50_ns = open.histogram.percentile(50);
    row.p99_ns = open.histogram.percentile(99);
    row.max_ns = open.histogram.max();
    end_to_end_.merge(meter.end_to_end);
    acknowledge_.merge(meter.acknowledge);
    meter.end_to_end.clear();
    meter.acknowledge.clear();
    while (!open_.empty() && open_.front().delivered == threads_) {
        open_.erase(open_.begin());
        ++first_open_;
    }
}

std::vector<Second> SecondsTable::seconds() const {
    std::lock_guard guard(mutex_);
    return seconds_;
}

Second SecondsTable::last() const {
    std::lock_guard guard(mutex_);
    return first_open_ == 0 ? Second{} : seconds_[first_open_ - 1];
}

}  // namespace pgmqtt::loadtest
