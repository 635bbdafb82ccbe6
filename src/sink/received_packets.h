// QoS 2 into a sink, exactly once: which messages it has, until their PUBREL.
//
// The broker notes that a QoS 2 message is received when its sink has committed, in another
// transaction. A crash in between makes the client send the message again, and the end of this
// worker makes the broker hand it over again. So the sink's own transaction says which packet
// identifier it was (pgmqtt.sink_received), and what is there already is not stored again. The
// store worker forgets it with the PUBREL, before the PUBCOMP lets the client use the identifier
// again.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <span>
#include <vector>

#include "pg/statement.h"
#include "sink/message.h"

namespace pgmqtt::sink {

class ReceivedPackets {
   public:
    ReceivedPackets();

    // Marks, by place, the messages that the sink has already. Like all here: inside the
    // transaction of the sink, outside of subtransactions; may raise.
    void look_up(std::span<const Message* const> messages, std::vector<char>& known);

    // What is stored now: all but those that are marked.
    void note(std::span<const Message* const> messages, const std::vector<char>& left_out);

   private:
    pg::Statement find_;
    pg::Statement note_;
};

}  // namespace pgmqtt::sink
