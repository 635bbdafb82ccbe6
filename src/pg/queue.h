// Two shm_mq, one each way, between the broker and one other worker. Either end may die and come
// back: the link is then set up anew under a higher epoch, and what was in the queues is gone.
// Nobody relies on them for more than speed: unacknowledged batches are sent again after an epoch
// change.
#pragma once

#include "pg/backend.h"

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "pg/shared.h"

namespace pgmqtt::pg {

// Shared memory for the three links; called by request_shared_memory().
Size link_memory_size();
void initialize_link_memory(void* memory);

class Link {
   public:
    // `peer` is kStore, kSink or kCdc; `self` is kBroker or the same as peer.
    Link(Worker self, Worker peer);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    // Once per turn: notices a lost other end and works on a new connection; never blocks. True
    // while connected.
    bool connect();
    bool connected() const;

    // Changes with every new connection.
    uint32_t epoch() const;

    // Queues `batch`, which is not empty, behind what is waiting and sends as much as fits now. The
    // unsent rest is kept here; flush() goes on with it. Never blocks. Returns false (and keeps
    // nothing) when down.
    bool send(base::ByteView batch);
    // True when nothing is waiting any more.
    bool flush();
    size_t unsent_bytes() const;

    // One whole batch, valid until the next call. False: nothing there now.
    bool receive(base::ByteView& batch);

    // Leaves the link; also happens at process exit.
    void close();

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace pgmqtt::pg
