// The bytes of an incomplete packet. Holds no memory when empty and at most about twice what has
// really arrived, unless its owner asks for more: the length a peer announces allocates nothing.
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
    base::ByteView bytes() const { return {block() + begin_, size_}; }

    // Replaces the contents. `bytes` lie outside this buffer. With room for `capacity` in all.
    void assign(base::ByteView bytes, size_t capacity = 0);

    // Room for `capacity` bytes from the front of the contents on, which is all that they need.
    void prepare(size_t capacity);

    // Room behind the contents, at least a quarter of what is there unless that is more than they
    // need. Doubles when it runs out.
    char* reserve();
    size_t reserved() const { return capacity_ - begin_ - size_; }
    void commit(size_t count) { size_ += count; }

    // Bytes stay where they are as long as the result lives. Call consume() next: what is left over
    // moves elsewhere.
    std::shared_ptr<const void> keep();

    // Drops from the front; gives memory back when little is left of much.
    void consume(size_t count);
    void release();

   private:
    static constexpr size_t kMinimum = 64;

    char* block() const { return kept_ ? kept_.get() : data_.get(); }
    // Throws std::bad_alloc and changes nothing that can be seen.
    void move_to(size_t capacity);

    struct Free {
        void operator()(char* data) const { std::free(data); }
    };
    std::unique_ptr<char, Free> data_;
    std::shared_ptr<char> kept_;  // in its place, from keep() to consume()
    size_t begin_ = 0;
    size_t size_ = 0;
    size_t capacity_ = 0;
    size_t prepared_ = 0;  // what the contents grow to, as far as is known
};

}  // namespace pgmqtt::net
