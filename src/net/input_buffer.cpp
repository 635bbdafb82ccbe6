#include "net/input_buffer.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace pgmqtt::net {

namespace {

// Below this, giving memory back costs more than keeping it.
constexpr size_t kWorthShrinking = 4096;

}  // namespace

void InputBuffer::assign(base::ByteView bytes, size_t capacity) {
    if (bytes.empty()) return release();
    const size_t fitting = std::max({kMinimum, std::bit_ceil(bytes.size()), capacity});
    if (capacity_ < std::max(bytes.size(), capacity) ||
        (capacity_ > kWorthShrinking && capacity_ > 4 * fitting)) {
        release();
        move_to(fitting);
    }
    prepared_ = capacity;
    std::memcpy(data_.get(), bytes.data(), bytes.size());
    begin_ = 0;
    size_ = bytes.size();
}

char* InputBuffer::reserve() {
    size_t enough = std::max(kMinimum, size_ / 4);
    if (prepared_ > size_) enough = std::min(enough, prepared_ - size_);
    if (reserved() < enough) move_to(std::max(2 * kMinimum, 2 * size_));
    return data_.get() + begin_ + size_;
}

void InputBuffer::prepare(size_t capacity) {
    if (capacity_ - begin_ < capacity) move_to(capacity);
    prepared_ = capacity;
}

std::shared_ptr<const void> InputBuffer::keep() {
    if (!kept_) kept_ = std::move(data_);
    return kept_;
}

void InputBuffer::consume(size_t count) {
    begin_ += count;
    size_ -= count;
    if (size_ == 0) return release();
    if (kept_) {
        InputBuffer rest;
        rest.assign(bytes());
        *this = std::move(rest);
        return;
    }
    if (count == 0) return;
    prepared_ = 0;
    if (capacity_ > kWorthShrinking && capacity_ / 4 > size_) {
        move_to(std::max(kMinimum, std::bit_ceil(size_)));
    }
}

void InputBuffer::release() {
    data_.reset();
    kept_.reset();
    begin_ = size_ = capacity_ = prepared_ = 0;
}

// realloc() finds room behind the block more often than not, where the last large packet was: with
// 256 KiB packets, copying into a new block was a tenth of the broker's time.
void InputBuffer::move_to(size_t capacity) {
    if (begin_ > 0) std::memmove(data_.get(), data_.get() + begin_, size_);
    begin_ = 0;
    auto* moved = static_cast<char*>(std::realloc(data_.get(), capacity));
    if (moved == nullptr) throw std::bad_alloc();
    static_cast<void>(data_.release());
    data_.reset(moved);
    capacity_ = capacity;
}

}  // namespace pgmqtt::net
