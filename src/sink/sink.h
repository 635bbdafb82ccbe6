// One sink at work: its statement, the messages that wait for it, its back-off.
#pragma once

#include "pg/backend.h"

#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pg/sink_slot.h"
#include "sink/batch_run.h"
#include "sink/completions.h"
#include "sink/dead_letters.h"
#include "sink/definition.h"
#include "sink/lock_patience.h"
#include "sink/message.h"
#include "sink/message_keys.h"
#include "sink/msg_relation.h"
#include "sink/received_packets.h"
#include "sink/sink_statement.h"

namespace pgmqtt::sink {

// What the sinks know of messages that may come again.
struct Identities {
    MessageKeys keys;
    ReceivedPackets received;
};

class Sink {
   public:
    using Clock = std::chrono::steady_clock;

    // `slot` may be null.
    Sink(Definition definition, pg::SinkSlot* slot);

    const Definition& definition() const { return definition_; }
    pg::SinkSlot* slot() const { return slot_; }
    void use_slot(pg::SinkSlot* slot) { slot_ = slot; }
    bool idle() const { return queue_.empty(); }

    // The row in pgmqtt.sink changed.
    void redefine(Definition definition);
    // The row is gone, or still gone: what waits, and what still comes, becomes dead letters.
    void retire();
    bool retired() const { return retirements_ > 0; }
    // The configuration has changed again since; nothing can be under way to it any more.
    bool outlived() const { return retirements_ > 1; }

    void enqueue(std::shared_ptr<Message> message);
    void forget_messages();

    bool due(Clock::time_point now) const { return !queue_.empty() && now >= retry_at_; }
    Clock::time_point retry_at() const { return retry_at_; }

    // One batch in one transaction (two, if the first showed that the batch must be bisected).
    // Reports to `completions` what is committed.
    void run(DeadLetters& dead_letters, Identities& identities, LockPatience& patience,
             Completions& completions);

   private:
    using Batch = std::vector<const Message*>;

    void rebuild();
    Batch next_batch() const;
    Outcome store(const Batch& batch, DeadLetters& dead_letters, Identities& identities);
    Outcome refuse(const Batch& batch, const pg::Error& error, DeadLetters& dead_letters);
    pg::Error not_wanted() const;
    pg::Status transact(const Batch& batch, bool bisect, Outcome& outcome,
                        DeadLetters& dead_letters, Identities& identities);
    void settle(const Outcome& outcome, Completions& completions);
    void limit_waits(LockPatience& patience);
    void hold(const Outcome& outcome);
    void hold_for_lock(size_t tried, Clock::duration took, LockPatience& patience);
    void recover();
    void show_queue();
    void show(pg::SinkState state, const std::string& message);

    Definition definition_;
    pg::SinkSlot* slot_;
    int retirements_ = 0;
    std::unique_ptr<MsgColumns> columns_;       // null: the filter is no filter
    std::unique_ptr<SinkStatement> statement_;  // refers to definition_ and columns_
    std::string activity_;

    std::deque<std::shared_ptr<Message>> queue_;
    int head_attempts_ = 0;  // how often the first message was held for its own error
    int holds_ = 0;          // in a row
    size_t batch_limit_;     // messages
    std::chrono::milliseconds lock_wait_ = LockPatience::kLongest;  // of this try
    bool logged_ = false;                                           // that it is held
    Clock::time_point retry_at_{};
};

}  // namespace pgmqtt::sink
