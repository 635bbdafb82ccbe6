// A walk that clears retained messages; see Broker::begin_clearing().
#pragma once

#include <cstdint>
#include <utility>

#include "broker/retained_store.h"

namespace pgmqtt::broker {

struct Clearing {
    explicit Clearing(RetainedCursor where) : cursor(std::move(where)) {}

    RetainedCursor cursor;
    uint64_t cleared = 0;
    uint64_t batch = 0;  // of the store, that tells of the last of them
};

}  // namespace pgmqtt::broker
