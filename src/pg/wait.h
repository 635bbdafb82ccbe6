// Waiting as a worker should: latch, postmaster death, one file descriptor, a deadline; visible in
// pg_stat_activity.
#pragma once

#include "pg/backend.h"

extern "C" {
#include "storage/latch.h"
}

namespace pgmqtt::pg {

// The set is constant: PostgreSQL 15 cannot remove a socket from one. So the broker's sockets are
// behind one poller descriptor.
class WaitSet {
   public:
    WaitSet();
    ~WaitSet();
    WaitSet(const WaitSet&) = delete;

    // At most once. The descriptor must stay open as long as the set.
    void add_descriptor(int fd);

    struct Ready {
        bool latch = false;  // has been reset
        bool descriptor = false;
        bool timeout = false;
    };
    // timeout_ms < 0: no deadline. Ends the process when the postmaster died.
    Ready wait(long timeout_ms, uint32 wait_event);

   private:
    ::WaitEventSet* set_;
};

}  // namespace pgmqtt::pg
