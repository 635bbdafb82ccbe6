#include "sink/completions.h"

namespace pgmqtt::sink {
namespace {

// Beside its bytes.
constexpr size_t kMessageOverhead = sizeof(Message) + 64;

size_t weight(const Message& message) {
    return message.bytes.size() + kMessageOverhead;
}

}  // namespace

void Completions::expect(Message& message, size_t sinks) {
    message.sinks = message.open = sinks;
    pending_bytes_ += weight(message);
    if (sinks == 0) complete(message);
}

void Completions::finish(Message& message, mqtt::ReasonCode reason, base::ByteView reason_string) {
    if (mqtt::is_error(reason) && !mqtt::is_error(message.reason)) {
        message.reason = reason;
        message.reason_string = reason_string;
    }
    if (--message.open == 0) complete(message);
}

void Completions::complete(const Message& message) {
    pending_bytes_ -= weight(message);
    writer_.add(broker::CompletionRecord{message.token, message.reason, message.reason_string});
}

void Completions::forget() {
    writer_.clear();
    pending_bytes_ = 0;
}

}  // namespace pgmqtt::sink
