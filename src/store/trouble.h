// What the store worker cannot do at the moment: when it tries again, and the one line in the log.
#pragma once

#include "pg/guard.h"

#include <chrono>
#include <string>

namespace pgmqtt::store {

class Trouble {
   public:
    using Clock = std::chrono::steady_clock;

    // As in "pgmqtt store could not write; acknowledgements are withheld", "pgmqtt store can
    // write".
    Trouble(const char* what, const char* consequence) : what_(what), consequence_(consequence) {}

    void failed(const pg::Error& error);
    void over();

    bool lasts() const { return Clock::now() < retry_at_; }
    Clock::time_point retry_at() const { return retry_at_; }

   private:
    void tell(pg::Error error, std::string detail);

    const char* what_;
    const char* consequence_;
    Clock::time_point retry_at_{};
    std::chrono::milliseconds delay_{0};
    Clock::time_point locked_since_{};
    bool told_ = false;
};

}  // namespace pgmqtt::store
