// The sink worker's state: batches of the broker to rows, completions back.
//
// At least once: a message whose transaction has committed but whose completion did not reach the
// broker (either end died in between) comes again and is stored again. A message that goes into
// several sinks is complete when all of them are done with it, and comes again to all of them.
// One process runs all sinks in turn, a batch each: a statement that takes seconds delays the
// others for so long; one that waits for a lock does not (lock_patience.h).
#pragma once

#include "pg/backend.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "broker/batch.h"
#include "pg/queue.h"
#include "sink/completions.h"
#include "sink/dead_letters.h"
#include "sink/lock_patience.h"
#include "sink/sink.h"

namespace pgmqtt::sink {

class Sinks {
   public:
    Sinks();
    ~Sinks();

    // One cycle: what has arrived, then one batch of every sink that is due.
    void turn();

    // When turn() wants to run although nobody sets the latch; milliseconds, -1: not at all.
    long timeout_ms() const;

   private:
    using Clock = Sink::Clock;

    void reconnect();
    bool configuration_moved() const;
    void reload();
    void apply(std::vector<Definition> definitions);
    void drop_retired();
    pg::SinkSlot* take_slot(uint32_t sink_id);
    void receive();
    void accept(const broker::SinkRecord& record);
    Sink& sink_of(uint32_t id);
    bool may_run(const Sink& sink) const;
    void run_due();
    void send_completions();

    pg::Link link_;
    uint32_t epoch_ = 0;
    std::unordered_map<uint32_t, std::unique_ptr<Sink>> sinks_;
    bool loaded_ = false;
    uint64_t configuration_ = 0;  // what sinks_ shows
    Clock::time_point reload_at_{};
    bool reload_failed_ = false;
    DeadLetters dead_letters_;
    Identities identities_;
    LockPatience patience_;
    Completions completions_;
    bool unread_ = false;  // too much is pending to look for more
};

}  // namespace pgmqtt::sink
