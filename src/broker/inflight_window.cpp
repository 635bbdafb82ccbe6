#include "broker/inflight_window.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pgmqtt::broker {

void InflightWindow::find_lowest() {
    lowest_ = next_;
    for (size_t i = 0; i < publishes_.size(); ++i) {
        lowest_ = std::min(lowest_, publishes_[i].sequence);
    }
    for (size_t i = 0; i < releases_.size(); ++i) {
        lowest_ = std::min(lowest_, releases_[i].sequence);
    }
}

// Only what is a whole round of identifiers ahead of the oldest can meet one in use.
bool InflightWindow::in_use(uint64_t sequence) {
    if (sequence < lowest_ + kIdentifiers) return false;
    find_lowest();
    if (sequence < lowest_ + kIdentifiers) return false;
    uint16_t id = identifier(sequence);
    for (size_t i = 0; i < publishes_.size(); ++i) {
        if (identifier(publishes_[i].sequence) == id) return true;
    }
    for (size_t i = 0; i < releases_.size(); ++i) {
        if (identifier(releases_[i].sequence) == id) return true;
    }
    return false;
}

uint64_t InflightWindow::take_sequence() {
    if (size() == 0) lowest_ = next_;
    if (size() < kIdentifiers && in_use(next_)) {
        std::vector<bool> used(kIdentifiers + 1);
        for (size_t i = 0; i < publishes_.size(); ++i) {
            used[identifier(publishes_[i].sequence)] = true;
        }
        for (size_t i = 0; i < releases_.size(); ++i) {
            used[identifier(releases_[i].sequence)] = true;
        }
        for (size_t i = 0; i < kIdentifiers && used[identifier(next_)]; ++i) ++next_;
    }
    return next_++;
}

void InflightWindow::push(Delivery delivery) {
    if (delivery.sequence == 0) delivery.sequence = take_sequence();
    lowest_ = size() == 0 ? delivery.sequence : std::min(lowest_, delivery.sequence);
    publishes_.push_back(std::move(delivery));
}

uint16_t InflightWindow::push_sent(Delivery delivery) {
    push(std::move(delivery));
    ++sent_;
    return identifier(publishes_.back().sequence);
}

Delivery* InflightWindow::next_unsent() {
    return sent_ < publishes_.size() ? &publishes_[sent_] : nullptr;
}

size_t InflightWindow::find(uint64_t sequence) const {
    size_t i = publishes_.find_first(
        [sequence](const Delivery& delivery) { return delivery.sequence < sequence; });
    return i < publishes_.size() && publishes_[i].sequence == sequence ? i : kNone;
}

size_t InflightWindow::find_sent(uint16_t id) {
    for (size_t i = 0; i < sent_; ++i) {
        if (identifier(publishes_[i].sequence) == id) return i;
    }
    return kNone;
}

Delivery InflightWindow::take_sent(size_t index) {
    --sent_;
    return publishes_.take(index);
}

void InflightWindow::push_release(Release release) {
    if (release.counted) ++counted_releases_;
    lowest_ = size() == 0 ? release.sequence : std::min(lowest_, release.sequence);
    releases_.push_back(std::move(release));
}

size_t InflightWindow::find_release(uint16_t id) {
    for (size_t i = 0; i < releases_.size(); ++i) {
        if (identifier(releases_[i].sequence) == id) return i;
    }
    return kNone;
}

Release InflightWindow::take_release(size_t index) {
    if (releases_[index].counted) --counted_releases_;
    return releases_.take(index);
}

void InflightWindow::connection_lost() {
    sent_ = 0;
    counted_releases_ = 0;
    for (size_t i = 0; i < releases_.size(); ++i) {
        releases_[i].counted = false;
        releases_[i].is_sent = false;
    }
}

}  // namespace pgmqtt::broker
