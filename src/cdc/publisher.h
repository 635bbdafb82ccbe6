// Hands publishes to the broker and knows how far they are done. What is not acknowledged yet is
// kept, bounded by kWindow, and sent again to a broker that came back.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/xlogdefs.h>
}

#include <deque>
#include <string>

#include "broker/batch.h"
#include "pg/queue.h"

namespace pgmqtt::cdc {

class Publisher {
   public:
    static constexpr size_t kWindow = 16 << 20;
    static constexpr size_t kBatchBytes = 256 << 10;

    Publisher();

    // Room for more? Otherwise wait for acknowledgements.
    bool has_room() const { return waiting_bytes_ < kWindow; }

    void add(const broker::MessageView& message);
    // The publishes of all transactions up to `lsn` have been added.
    void transaction_done(XLogRecPtr lsn);
    // Sends what was added.
    void flush();

    // Once per turn: connection, acknowledgements, sending.
    void turn();

    // Everything up to here is with the broker for good; what follows is not.
    XLogRecPtr done() const { return done_; }
    bool idle() const { return waiting_.empty() && batch_.empty(); }
    bool connected() const { return link_.connected(); }

   private:
    struct Waiting {
        uint64_t number;
        std::string bytes;
        XLogRecPtr complete_to;  // transactions that end in this batch; invalid: none
        bool acknowledged;
    };

    void seal();
    void acknowledge(uint64_t number);

    pg::Link link_;
    uint32_t epoch_ = 0;
    bool was_connected_ = false;
    broker::BatchWriter batch_;
    XLogRecPtr batch_complete_to_ = InvalidXLogRecPtr;
    std::deque<Waiting> waiting_;
    size_t waiting_bytes_ = 0;
    uint64_t next_number_ = 1;
    XLogRecPtr done_ = InvalidXLogRecPtr;
};

}  // namespace pgmqtt::cdc
