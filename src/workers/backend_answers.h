// What backends that ask something of the broker get to hear: who looks at pgmqtt.clients as much
// per turn as it has read, who clears retained messages when that is done and stored.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "broker/broker.h"
#include "broker/clearing.h"
#include "pg/inquiry.h"

namespace pgmqtt::workers {

// Ends before the broker.
class BackendAnswers {
   public:
    // Once per turn; never blocks.
    void turn(broker::Broker& broker, base::Now now);
    // There is more to say, and it would fit: the next turn should not wait.
    bool can_go_on() const { return can_go_on_; }
    // Then somebody is to be told that we are at it; kNever: nobody.
    base::MonoTime next() const;

   private:
    struct Answer {
        std::unique_ptr<pg::Inquiry> inquiry;
        uint32_t slot = 0;  // of the next client
        std::unique_ptr<broker::Clearing> clearing;
        base::MonoTime told_at{};  // how far it is
        bool finished = false;
    };

    // False when it is over.
    bool go_on(Answer& answer, broker::Broker& broker, base::Now now);
    bool tell_clients(Answer& answer, const broker::Broker& broker, base::Now now);
    bool clear(Answer& answer, broker::Broker& broker, base::Now now);

    std::vector<Answer> answers_;
    std::string bytes_;  // reused
    bool can_go_on_ = false;
};

}  // namespace pgmqtt::workers
