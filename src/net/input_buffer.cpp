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

void InputBuffer::assign(base::ByteView bytes) {
    if (bytes.empty()) return release();
    const size_t fitting = std::max(kMinimum, std::bit_ceil(bytes.size()));
    if (capacity_ < bytes.size() || (capacity_ > kWorthShrinking && capacity_ > 4 * fitting)) {
        release();
        move_to(fitting);
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
