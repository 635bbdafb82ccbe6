// A backend asks the broker, and gets an answer of any number of records: through a shm_mq in a
// dynamic segment that the backend makes for it. So nothing is kept for who might ask, records have
// no limit, and whatever becomes of the backend, the segment goes with it. The broker never waits
// for it.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <storage/dsm.h>
}

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"

namespace pgmqtt::pg {

// Of a backend, inside a guard: asks who is connected, or, with a topic filter, clears the retained
// messages that it matches. Calls take(context, record) for each record of the answer,
// whose bytes are valid during the call. Raises, also when the broker does not run, ends meanwhile,
// or says nothing for long. `take` may raise.
using TakeRecord = void (*)(void* context, base::ByteView record);
void ask_broker(base::ByteView filter, TakeRecord take, void* context);

// Of the broker: one that asked. Left when it ends.
class Inquiry {
   public:
    // The next that waits for an answer; null: none.
    static std::unique_ptr<Inquiry> next();

    ~Inquiry();
    Inquiry(const Inquiry&) = delete;

    // Empty: the question is who is connected.
    const std::string& filter() const { return filter_; }

    // Sends what is left of the last record. True when nothing is: only then comes another. When
    // not, the broker's latch is set as soon as more fits.
    bool flush();
    void send(base::ByteView record);
    // Behind the last record.
    void finish();
    // The backend does not listen any more.
    bool gone() const { return gone_; }

   private:
    Inquiry() = default;
    bool attach(uint32_t handle);

    dsm_segment* segment_ = nullptr;
    shm_mq_handle* queue_ = nullptr;
    std::string filter_;
    std::string message_;  // not sent yet
    bool gone_ = false;
};

}  // namespace pgmqtt::pg
