// msg.message_key: the same for a message and its repetitions, another one for every other message.
//
// MQTT gives a message no name beyond its packet identifier, which is used again once the message
// is acknowledged, and DUP says only that the client may have sent it before: the broker need not
// have it. So a repetition is one with DUP whose topic, payload and properties are those of the
// last message under its identifier in the session. What that was is a row of
// pgmqtt.sink_message_key, written in the transaction of the sink's rows: the rows and the key are
// known, or neither is.
#pragma once

#include "pg/backend.h"

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "pg/statement.h"
#include "sink/message.h"

namespace pgmqtt::sink {

class MessageKeys {
   public:
    MessageKeys();

    // Gives repetitions the key of what they repeat, and notes what is the last message now. Inside
    // the transaction of their sink, outside of subtransactions; may raise.
    void resolve(std::span<const Message* const> messages);

    // Forgets sessions that are gone, here and in pgmqtt.sink_received, now and then, in a
    // transaction of its own.
    void clean_up();

   private:
    // Session and packet identifier.
    using Place = std::pair<uint64_t, uint16_t>;
    struct Last {
        base::WallTime session_created_at{};
        uint64_t fingerprint = 0;
        std::string key;
        bool stored = false;
    };

    void look_up(std::span<const Message* const> messages);
    void follow(std::span<const Message* const> messages);
    void note();

    pg::Statement find_;
    pg::Statement note_;
    pg::Statement forget_;
    pg::Statement forget_received_;
    std::map<Place, Last>
        last_;  // of the batch; here, because an ERROR passes by what is on the stack
    std::chrono::steady_clock::time_point cleaned_at_ = std::chrono::steady_clock::now();
};

}  // namespace pgmqtt::sink
