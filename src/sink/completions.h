// What the broker hears of messages that are done, and how much of it is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "broker/batch.h"
#include "sink/message.h"

namespace pgmqtt::sink {

class Completions {
   public:
    // A message came in for `sinks` sinks; with none it is done at once.
    void expect(Message& message, size_t sinks);

    // One sink is done with it. The first failure is the one that is told.
    void finish(Message& message, mqtt::ReasonCode reason, base::ByteView reason_string);

    // The broker will send everything again: nothing that was expected is completed any more.
    void forget();

    bool empty() const { return writer_.empty(); }
    // The next batch to send, then clear().
    base::ByteView batch() { return writer_.finish(++number_); }
    void clear() { writer_.clear(); }

    size_t pending_bytes() const { return pending_bytes_; }

   private:
    void complete(const Message& message);

    broker::BatchWriter writer_{broker::BatchKind::kCompletion};
    uint64_t number_ = 0;
    size_t pending_bytes_ = 0;
};

}  // namespace pgmqtt::sink
