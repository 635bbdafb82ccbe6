// What backends that look at pgmqtt.clients get to see: as much per turn as they have read.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "broker/broker.h"
#include "pg/inquiry.h"

namespace pgmqtt::workers {

class ClientAnswers {
   public:
    // Once per turn; never blocks.
    void turn(const broker::Broker& broker, base::Now now);
    // There is more to say, and it would fit: the next turn should not wait.
    bool can_go_on() const { return can_go_on_; }

   private:
    struct Answer {
        std::unique_ptr<pg::Inquiry> inquiry;
        uint32_t slot = 0;  // of the next client
        bool finished = false;
    };

    // False when it is over.
    bool go_on(Answer& answer, const broker::Broker& broker, base::Now now);

    std::vector<Answer> answers_;
    std::string bytes_;  // reused
    bool can_go_on_ = false;
};

}  // namespace pgmqtt::workers
