// Bytes on their way to one client, in order. Small packets are copied into one growing block;
// large payloads are shared between all their receivers and never copied.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "base/bytes.h"

namespace pgmqtt::base {

class Outbox {
   public:
    // Where encoders append. Bytes appended here follow everything put in before. The reference
    // holds until the next call of a member that is not const; what is in the string already must
    // stay.
    std::string& tail();

    // Appends without copying; `owner` keeps `bytes` alive until they are sent.
    void append_shared(std::shared_ptr<const void> owner, ByteView bytes);

    // Bytes not yet consumed.
    size_t size() const;
    bool empty() const { return size() == 0; }
    // Without those of append_shared().
    size_t owned_size() const;

    // Fills at most `capacity` iovecs with the first unsent bytes and returns how many.
    size_t gather(iovec* vectors, size_t capacity) const;

    // The first `count` bytes were sent.
    void consume(size_t count);

    void clear();

   private:
    struct Chunk {
        std::string owned;                   // used when `shared` is null
        std::shared_ptr<const void> shared;  // keeps `view` alive
        ByteView view;
        ByteView bytes() const { return shared ? view : ByteView(owned); }
    };

    void drop_first();

    std::deque<Chunk> chunks_;
    size_t sealed_ = 0;    // bytes in all chunks but the last, which alone may still grow
    size_t shared_ = 0;    // bytes in shared chunks
    size_t consumed_ = 0;  // of the first chunk
};

}  // namespace pgmqtt::base
