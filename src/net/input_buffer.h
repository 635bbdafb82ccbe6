// The bytes of an incomplete packet. Holds no memory when empty and at most about twice what has
// really arrived: the length a peer announces allocates nothing.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/bytes.h"

namespace pgmqtt::net {

class InputBuffer {
   public:
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    size_t capacity() const { return capacity_; }
    base::ByteView bytes() const { return {data_.get() + begin_, size_}; }

    // Replaces the contents. `bytes` lie outside this buffer.
    void assign(base::ByteView bytes);

    // Room behind the contents, at least a quarter of what is there. Doubles when it runs out.
    char* reserve();
    size_t reserved() const { return capacity_ - begin_ - size_; }
    void commit(size_t count) { size_ += count; }

    // Drops from the front; gives memory back when little is left of much.
    void consume(size_t count);
    void release();

   private:
    static constexpr size_t kMinimum = 64;

    // Throws std::bad_alloc and changes nothing that can be seen.
    void move_to(size_t capacity);

    struct Free {
        void operator()(char* data) const { std::free(data); }
    };
    std::unique_ptr<char, Free> data_;
    size_t begin_ = 0;
    size_t size_ = 0;
    size_t capacity_ = 0;
};

}  // namespace pgmqtt::net
