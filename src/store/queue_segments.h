// The tables of the queue's two logs: pools of segments, each a table of messages and one of packed
// entries (broker/queue_log.h), which are only ever appended to and truncated.
#pragma once

#include "pg/guard.h"

#include <string>
#include <vector>

#include "broker/queue_log.h"
#include "pg/append_table.h"

namespace pgmqtt::store {

// Which log: pgmqtt.message_1 and queue_1 to _8, or unlogged_message_1 and so on.
enum class LogKind : int { kLogged, kUnlogged };

inline constexpr LogKind kLogKinds[] = {LogKind::kLogged, LogKind::kUnlogged};

// As many as the install script makes. A segment holds a quarter of what is live, so four or five
// are in use; the others are there for the time in which a DBA's lock keeps one from truncation.
inline constexpr int kSegments = 8;

// Names of a segment's tables. Slots count from 0.
struct SegmentName {
    SegmentName(LogKind kind, int slot);
    char message[NAMEDATALEN];
    char queue[NAMEDATALEN];
};

// Where a message is, for the entries: slot and place in its table.
broker::Place message_place(int slot, pg::RowPlace row);
int slot_of(broker::Place place);  // -1: nowhere
pg::RowPlace row_of(broker::Place place);

// A row of a queue table.
struct QueueRun {
    int slot = 0;
    uint64_t batch = 0;
    int32_t part = 0;
    std::string entries;
};

// All runs of a log, in no order. Inside a guard, in a transaction; may raise.
void read_runs(LogKind kind, std::vector<QueueRun>& runs);
// Into the order of writing.
void sort_runs(std::vector<QueueRun>& runs);

}  // namespace pgmqtt::store
