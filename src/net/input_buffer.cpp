#include "net/input_buffer.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pgmqtt::net {

namespace {

// Below this, giving memory back costs more than keeping it.
constexpr size_t kWorthShrinking = 4096;

}  // namespace

void InputBuffer::assign(base::ByteView bytes) {
    if (bytes.empty()) return release();
    const size_t fitting = std::max(kMinimum, std::bit_ceil(bytes.size()));
    if (capacity_ < bytes.size() || (capacity_ > kWorthShrinking && capacity_ > 4 * fitting)) {
        release();
        data_.reset(new char[fitting]);  // not make_unique: that would write zeros first
        capacity_ = fitting;
    }
    std::memcpy(data_.get(), bytes.data(), bytes.size());
    begin_ = 0;
    size_ = bytes.size();
}

char* InputBuffer::reserve() {
    if (reserved() < std::max(kMinimum, size_ / 4)) move_to(std::max(2 * kMinimum, 2 * size_));
    return data_.get() + begin_ + size_;
}

void InputBuffer::consume(size_t count) {
    begin_ += count;
    size_ -= count;
    if (size_ == 0) return release();
    if (capacity_ > kWorthShrinking && capacity_ / 4 > size_) {
        move_to(std::max(kMinimum, std::bit_ceil(size_)));
    }
}

void InputBuffer::release() {
    data_.reset();
    begin_ = size_ = capacity_ = 0;
}

void InputBuffer::move_to(size_t capacity) {
    std::unique_ptr<char[]> moved(new char[capacity]);
    if (size_ > 0) std::memcpy(moved.get(), data_.get() + begin_, size_);
    data_ = std::move(moved);
    begin_ = 0;
    capacity_ = capacity;
}

}  // namespace pgmqtt::net
