// Decoded changes in commit order, first in, first out. Up to kMemoryLimit they are in memory; what
// comes behind that goes to a temporary file, so a transaction of any size is bounded in memory.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <storage/fd.h>
}

#include <cstdint>
#include <deque>
#include <memory>

#include "cdc/change.h"

namespace pgmqtt::cdc {

class ChangeLog {
   public:
    static constexpr size_t kMemoryLimit = 16 << 20;
    static constexpr size_t kBlockSize = 256 << 10;

    ChangeLog() = default;
    ~ChangeLog();
    ChangeLog(const ChangeLog&) = delete;

    // Space for one record of `size` bytes (a multiple of 8); the caller fills it at once. Throws
    // when the temporary file cannot be written. May be called from a decoding callback: raises
    // nothing.
    char* append(size_t size);

    // A place between two records.
    struct Mark {
        uint64_t block = 0;
        size_t offset = 0;
    };

    // The record at `mark`, which moves behind it; null at the end. It stays where it is until
    // discard(). Throws when the temporary file cannot be read.
    Record* read(Mark& mark);
    Mark begin() const { return {first_block_, discarded_}; }
    // Forgets everything before `mark`.
    void discard(Mark mark);
    void clear();

    bool empty() const { return bytes_ == 0; }
    size_t bytes() const { return bytes_; }  // in memory and in the file
    // Written to files so far.
    uint64_t spilled() const { return spilled_; }

   private:
    struct Block {
        std::unique_ptr<char[]> bytes;  // null: in the file
        size_t capacity = 0;
        size_t used = 0;
        off_t file_offset = -1;  // -1: not in the file
    };

    void spill(Block& block);
    void load(Block& block);
    void release_file();

    std::deque<Block> blocks_;
    uint64_t first_block_ = 0;  // number of blocks_.front()
    size_t discarded_ = 0;      // bytes of blocks_.front() that nobody needs any more
    size_t bytes_ = 0;
    size_t in_memory_ = 0;
    size_t in_file_ = 0;  // blocks
    uint64_t spilled_ = 0;
    File file_ = -1;
    off_t file_end_ = 0;
};

}  // namespace pgmqtt::cdc
