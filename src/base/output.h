// The way out of a connection's outbox, for who fills it.
#pragma once

#include "base/ids.h"

namespace pgmqtt::base {

class Output {
   public:
    // Sends of the outbox what the socket takes now. Nothing else changes for the caller: what
    // comes of an error, or of room again, is told later.
    virtual void flush(ConnectionId id) = 0;

   protected:
    ~Output() = default;
};

}  // namespace pgmqtt::base
