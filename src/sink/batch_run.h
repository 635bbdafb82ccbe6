// One batch of messages through one sink: all at once if it can be, else bisected until those that
// cannot be stored stand alone.
#pragma once

#include "pg/backend.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "pg/guard.h"
#include "sink/msg_relation.h"
#include "sink/sink_statement.h"

namespace pgmqtt::sink {

// A message that cannot be stored, by its place in the batch.
struct Failure {
    size_t index = 0;
    pg::Error error;
};

enum class HeldBy : uint8_t {
    kNothing,
    kWeather,    // a transient error
    kStatement,  // it cannot run at all, whatever the messages are
    kMessage,    // cannot be stored, but may be tried again
};

struct Outcome {
    size_t done = 0;                // the first `done` messages are stored, or in `failures`
    std::vector<Failure> failures;  // in order
    HeldBy held_by = HeldBy::kNothing;
    pg::Error held;  // why message `done` and those behind it must wait
};

class BatchRun {
   public:
    // All arguments must outlive this.
    BatchRun(SinkStatement& statement, const MsgColumns& columns,
             std::span<const Message* const> messages, Outcome& outcome)
        : statement_(statement), messages_(messages), rows_(columns, messages), outcome_(outcome) {}

    // Messages that cannot be stored are held, not reported: all of them, or all but the first,
    // which was held often enough. Before run_bisected().
    void hold_failures(bool first_too) {
        hold_failures_ = true;
        hold_first_ = first_too;
    }

    // By place: those that are stored already. Must outlive this.
    void leave_out(std::span<const char> stored) { rows_.leave_out(stored); }

    // Both inside a transaction. run_whole() raises what the statement raises; that says nothing
    // about single messages. run_bisected() keeps what can be stored, in order.
    void run_whole();
    void run_bisected();

   private:
    bool store(size_t first, size_t last);
    bool settle(size_t index);
    bool attempt(size_t first, size_t last);
    void forget_plans();
    bool statement_is_at_fault();
    void hold(HeldBy reason);
    void report_unfit();

    SinkStatement& statement_;
    std::span<const Message* const> messages_;
    MsgRows rows_;
    Outcome& outcome_;
    pg::Error error_;  // of the last failed attempt
    bool hold_failures_ = false;
    bool hold_first_ = false;
    bool plans_are_fresh_ = false;
    bool statement_works_ = false;  // known since it ran without a row, or with some
};

}  // namespace pgmqtt::sink
