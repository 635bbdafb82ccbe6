#include "cdc/change_log.h"

extern "C" {
#include <utils/wait_event.h>
}

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace pgmqtt::cdc {

namespace {

[[noreturn]] void throw_file_error(const char* what) {
    throw std::runtime_error(std::string("could not ") + what +
                             " the temporary file of decoded changes: " + std::strerror(errno));
}

// PostgreSQL's file API moves at most 1 GB at once.
constexpr size_t kMaxTransfer = 1 << 30;

}  // namespace

ChangeLog::~ChangeLog() {
    clear();
}

char* ChangeLog::append(size_t size) {
    if (blocks_.empty() || !blocks_.back().bytes ||
        blocks_.back().capacity - blocks_.back().used < size) {
        // The block being read is at the front; only full ones behind it leave memory.
        if (blocks_.size() > 1 && in_memory_ > kMemoryLimit) spill(blocks_.back());
        Block block;
        block.capacity = std::max(kBlockSize, size);
        block.bytes.reset(new char[block.capacity]);
        in_memory_ += block.capacity;
        blocks_.push_back(std::move(block));
    }
    Block& block = blocks_.back();
    char* space = block.bytes.get() + block.used;
    block.used += size;
    bytes_ += size;
    return space;
}

Record* ChangeLog::read(Mark& mark) {
    while (true) {
        size_t index = static_cast<size_t>(mark.block - first_block_);
        if (index >= blocks_.size()) return nullptr;
        Block& block = blocks_[index];
        if (mark.offset < block.used) {
            if (!block.bytes) load(block);
            auto* record = reinterpret_cast<Record*>(block.bytes.get() + mark.offset);
            mark.offset += record->size;
            return record;
        }
        if (index + 1 == blocks_.size()) return nullptr;
        mark = {mark.block + 1, 0};
    }
}

void ChangeLog::discard(Mark mark) {
    while (first_block_ < mark.block) {
        Block& block = blocks_.front();
        bytes_ -= block.used - discarded_;
        if (block.bytes) in_memory_ -= block.capacity;
        if (block.file_offset >= 0) --in_file_;
        blocks_.pop_front();
        ++first_block_;
        discarded_ = 0;
    }
    bytes_ -= mark.offset - discarded_;
    discarded_ = mark.offset;
    if (bytes_ == 0) clear();
    if (in_file_ == 0) release_file();
}

void ChangeLog::clear() {
    first_block_ += blocks_.size();
    blocks_.clear();
    discarded_ = bytes_ = in_memory_ = in_file_ = 0;
    release_file();
}

// FileWrite() raises only for temp_file_limit, which the worker lifts for itself.
void ChangeLog::spill(Block& block) {
    if (!block.bytes) return;
    if (block.file_offset >= 0) {  // has been there before
        block.bytes.reset();
        in_memory_ -= block.capacity;
        return;
    }
    if (file_ < 0) file_ = OpenTemporaryFile(true);
    for (size_t done = 0; done < block.used;) {
        int step = static_cast<int>(std::min(kMaxTransfer, block.used - done));
        ssize_t written = FileWrite(file_, block.bytes.get() + done, step,
                                    file_end_ + static_cast<off_t>(done), WAIT_EVENT_BUFFILE_WRITE);
        if (written <= 0) throw_file_error("write");
        done += static_cast<size_t>(written);
    }
    block.file_offset = file_end_;
    spilled_ += block.used;
    file_end_ += static_cast<off_t>(block.used);
    block.bytes.reset();
    in_memory_ -= block.capacity;
    ++in_file_;
}

void ChangeLog::load(Block& block) {
    std::unique_ptr<char[]> bytes(new char[block.used]);
    for (size_t done = 0; done < block.used;) {
        int step = static_cast<int>(std::min(kMaxTransfer, block.used - done));
        ssize_t got =
            FileRead(file_, bytes.get() + done, step, block.file_offset + static_cast<off_t>(done),
                     WAIT_EVENT_BUFFILE_READ);
        if (got <= 0) throw_file_error("read");
        done += static_cast<size_t>(got);
    }
    block.bytes = std::move(bytes);
    block.capacity = block.used;
    in_memory_ += block.capacity;
}

void ChangeLog::release_file() {
    if (file_ < 0) return;
    FileClose(file_);
    file_ = -1;
    file_end_ = 0;
}

}  // namespace pgmqtt::cdc
