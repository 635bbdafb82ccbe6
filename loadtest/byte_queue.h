// Bytes that wait for a socket: appended at the end, written from the front.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include "base/bytes.h"

namespace pgmqtt::loadtest {

class ByteQueue {
   public:
    const char* data() const { return bytes_.get() + begin_; }
    size_t size() const { return end_ - begin_; }

    // Room for `size` bytes at the end, not initialized; they count at once.
    char* extend(size_t size) {
        if (end_ + size > capacity_) [[unlikely]]
            make_room(size);
        char* at = bytes_.get() + end_;
        end_ += size;
        return at;
    }
    void append(base::ByteView bytes) {
        std::memcpy(extend(bytes.size()), bytes.data(), bytes.size());
    }

    void drop_front(size_t size) {
        begin_ += size;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    void clear() { begin_ = end_ = 0; }
    // Gives the memory back: an idle connection holds none.
    void release() {
        clear();
        bytes_.reset();
        capacity_ = 0;
    }

   private:
    void make_room(size_t size) {
        size_t used = this->size();
        size_t capacity = capacity_ == 0 ? 256 : capacity_;
        while (capacity < used + size) capacity *= 2;
        std::unique_ptr<char[]> bytes(new char[capacity]);
        if (used != 0) std::memcpy(bytes.get(), data(), used);
        bytes_ = std::move(bytes);
        capacity_ = capacity;
        begin_ = 0;
        end_ = used;
    }

    std::unique_ptr<char[]> bytes_;
    size_t capacity_ = 0;
    size_t begin_ = 0;
    size_t end_ = 0;
};

}  // namespace pgmqtt::loadtest
