// What the sink worker noted of QoS 2 messages ends with their PUBREL: sink/received_packets.h.
#pragma once

#include "pg/backend.h"

#include "broker/session_changes.h"
#include "pg/statement.h"

namespace pgmqtt::store {

class SinkReceived {
   public:
    SinkReceived();
    // Inside the storing transaction; both may raise.
    bool concerned(const broker::SessionNetEffect& net);
    void forget_released(const broker::SessionNetEffect& net);

   private:
    bool may_have_rows();

    pg::Statement look_;
    pg::Statement remove_;
    bool looked_ = false;
    bool left_over_ = false;  // from before the server started
};

}  // namespace pgmqtt::store
