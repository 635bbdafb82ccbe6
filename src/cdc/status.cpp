#include "cdc/status.h"

extern "C" {
#include <mb/pg_wchar.h>
}

#include <algorithm>
#include <cstring>

namespace pgmqtt::cdc {

namespace {

pg::MappingStatus* find(int id) {
    pg::MappingStatus* all = pg::shared()->mapping_status;
    auto* end = all + pg::kMappingStatusCount;
    auto* found = std::find_if(all, end, [id](const auto& status) { return status.id == id; });
    return found == end ? nullptr : found;
}

// Cut between characters.
void copy_text(char* to, size_t size, std::string_view text) {
    int length =
        pg_mbcliplen(text.data(), static_cast<int>(text.size()), static_cast<int>(size) - 1);
    std::memcpy(to, text.data(), static_cast<size_t>(length));
    to[length] = '\0';
}

}  // namespace

pg::MappingStatus* claim_status(int id) {
    if (pg::MappingStatus* known = find(id)) return known;
    pg::MappingStatus* free = find(0);
    if (free == nullptr) return nullptr;
    free->rows = free->filtered = free->published = free->errors = 0;
    free->commit_lsn = 0;
    free->commit_at = 0;
    free->times.count = 0;
    set_status(free, "streaming");
    free->id = id;
    return free;
}

void keep_statuses(const int* keep, int count) {
    for (pg::MappingStatus& status : pg::shared()->mapping_status) {
        int id = status.id;
        if (id > 0 && std::find(keep, keep + count, id) == keep + count) status.id = 0;
    }
}

void set_status(pg::MappingStatus* status, std::string_view state, std::string_view message) {
    if (status == nullptr) return;
    ++status->version;
    copy_text(status->state, sizeof status->state, state);
    copy_text(status->message, sizeof status->message, message);
    ++status->version;
}

void set_stream_status(std::string_view state, std::string_view message) {
    set_status(claim_status(pg::MappingStatus::kStream), state, message);
}

bool read_status(int id, StatusCopy& copy) {
    pg::MappingStatus* status = find(id);
    if (status == nullptr) return false;
    uint32_t before;
    do {
        before = status->version;
        std::memcpy(copy.state, status->state, sizeof copy.state);
        std::memcpy(copy.message, status->message, sizeof copy.message);
        std::atomic_thread_fence(std::memory_order_acquire);
    } while (before % 2 != 0 || before != status->version);
    copy.rows = status->rows;
    copy.filtered = status->filtered;
    copy.published = status->published;
    copy.errors = status->errors;
    copy.commit_lsn = status->commit_lsn;
    copy.commit_at = status->commit_at;
    copy.times = status->times.percentiles();
    return true;
}

}  // namespace pgmqtt::cdc
