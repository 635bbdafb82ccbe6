#include "base/outbox.h"

#include <algorithm>
#include <utility>

namespace pgmqtt::base {
namespace {

// A block that reached this size is closed: a client that never catches up completely still gives
// back what it has received, block by block.
constexpr size_t kBlockBytes = 64 * 1024;

// A drained block is used again up to this capacity. More is returned: there may be a hundred
// thousand idle connections, each of which was busy once.
constexpr size_t kKeepBytes = 4 * 1024;

}  // namespace

std::string& Outbox::tail() {
    if (chunks_.empty() || chunks_.back().shared || chunks_.back().owned.size() >= kBlockBytes) {
        if (!chunks_.empty()) sealed_ += chunks_.back().bytes().size();
        chunks_.emplace_back();
    }
    return chunks_.back().owned;
}

void Outbox::append_shared(std::shared_ptr<const void> owner, ByteView bytes) {
    if (bytes.empty()) return;
    if (!chunks_.empty()) sealed_ += chunks_.back().bytes().size();
    Chunk& chunk = chunks_.emplace_back();
    chunk.shared = std::move(owner);
    chunk.view = bytes;
    shared_ += bytes.size();
}

size_t Outbox::size() const {
    if (chunks_.empty()) return 0;
    return sealed_ + chunks_.back().bytes().size() - consumed_;
}

size_t Outbox::owned_size() const {
    if (shared_ == 0) return size();
    size_t unsent_shared = shared_ - (chunks_.front().shared ? consumed_ : 0);
    return size() - unsent_shared;
}

size_t Outbox::gather(iovec* vectors, size_t capacity) const {
    size_t count = 0;
    size_t skip = consumed_;
    for (const Chunk& chunk : chunks_) {
        if (count == capacity) break;
        ByteView unsent = chunk.bytes().substr(skip);
        skip = 0;
        if (unsent.empty()) continue;
        // writev() takes pointers to non-const and does not write.
        vectors[count++] = {const_cast<char*>(unsent.data()), unsent.size()};
    }
    return count;
}

void Outbox::consume(size_t count) {
    count = std::min(count, size());
    while (count > 0) {
        size_t unsent = chunks_.front().bytes().size() - consumed_;
        if (count < unsent) {
            consumed_ += count;
            return;
        }
        count -= unsent;
        drop_first();
    }
}

// The first chunk is sent. The last block stays for tail() to fill again, unless it is large.
void Outbox::drop_first() {
    consumed_ = 0;
    Chunk& first = chunks_.front();
    if (first.shared) shared_ -= first.view.size();
    if (chunks_.size() > 1) {
        sealed_ -= first.bytes().size();
        chunks_.pop_front();
    } else if (first.shared || first.owned.capacity() > kKeepBytes) {
        chunks_.pop_front();
    } else {
        first.owned.clear();
    }
}

void Outbox::clear() {
    chunks_.clear();
    sealed_ = 0;
    shared_ = 0;
    consumed_ = 0;
}

}  // namespace pgmqtt::base
