// How a mapping is doing, for everybody to see (pgmqtt.mappings), through shared memory.
#pragma once

#include "pg/backend.h"

#include <string_view>

#include "pg/shared.h"

namespace pgmqtt::cdc {

// The place of `id` in shared memory, taken when it is new; null when all are in use. Of the cdc
// worker.
pg::MappingStatus* claim_status(int id);
// Frees those whose id is not in `keep`.
void keep_statuses(const int* keep, int count);

void set_status(pg::MappingStatus* status, std::string_view state, std::string_view message = {});
// The stream's own: why nothing flows.
void set_stream_status(std::string_view state, std::string_view message = {});

// A consistent copy, for readers in other processes. False: nothing known of `id`.
struct StatusCopy {
    uint64_t rows;
    uint64_t filtered;
    uint64_t published;
    uint64_t errors;
    uint64_t commit_lsn;
    int64_t commit_at;
    pg::BatchTimes::Percentiles times;
    char state[sizeof pg::MappingStatus::state];
    char message[pg::MappingStatus::kMessageSize];
};
bool read_status(int id, StatusCopy& copy);

}  // namespace pgmqtt::cdc
