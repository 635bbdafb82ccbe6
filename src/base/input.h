// Bytes that come in pieces, as their receiver sees who shows them. Large packets need not be
// copied.
#pragma once

#include <cstddef>
#include <memory>

namespace pgmqtt::base {

struct KeptInput {
    std::shared_ptr<const void> owner;  // the bytes stay where they are as long as this lives
    size_t held = 0;                    // bytes of memory that it holds
};

// Only while bytes are being shown.
class Input {
   public:
    // What is left over of the bytes shown is the beginning of a packet of `size` bytes.
    virtual void expect(size_t size) = 0;

    // For who wants to keep `bytes` of what is shown. Without an owner where they cannot stay, or
    // are less than half of what would be held for them: copy them then.
    virtual KeptInput keep(size_t bytes) = 0;

   protected:
    ~Input() = default;
};

}  // namespace pgmqtt::base
