// The backend puts the handle of its segment into Shared::inquiries and sets the broker's latch;
// the broker takes it out, attaches, and sends. A record is a message with kRecord as its first
// byte; kEnd alone says that the answer is complete, so that a broker that ends is not taken for
// it. The filter of a question stands behind the ring.
#include "pg/inquiry.h"

extern "C" {
#include <storage/shm_mq.h>
#include <utils/timestamp.h>
}

#include <algorithm>
#include <cstring>
#include <optional>

#include "pg/guard.h"
#include "pg/log.h"
#include "pg/shared.h"

namespace pgmqtt::pg {
namespace {

// Bounds what the broker sends in a turn: what does not fit waits for the backend to read.
constexpr Size kRingSize = 64 * 1024;
// A broker that lives answers within its turn.
constexpr int kPatienceMs = 5000;
constexpr long kFullPollMs = 10;  // while as many wait as there is room for

constexpr char kRecord = 1;
constexpr char kEnd = 0;

// --- the backend's side; all of it may raise

[[noreturn]] void raise_not_running() {
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("the pgmqtt broker is not running"),
             errhint("The server's log says why. It is started again within seconds, unless the "
                     "server is in recovery.")));
}

[[noreturn]] void raise_ended() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the pgmqtt broker ended while it answered"),
                    errhint("Try again: it is started again within seconds.")));
}

void wait_until(TimestampTz deadline, long at_most_ms) {
    if (shared()->workers[static_cast<int>(Worker::kBroker)].pid == 0) raise_not_running();
    long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
    if (left <= 0)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the pgmqtt broker did not answer within %d s", kPatienceMs / 1000),
                        errhint("It is starting, or busy with something that takes long: see "
                                "pg_stat_activity and the server's log.")));
    WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
              left < at_most_ms ? left : at_most_ms, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

TimestampTz new_deadline() {
    return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), kPatienceMs);
}

// The segment is being let go of, for whatever reason: who has not been taken up asks no more.
void withdraw(dsm_segment*, Datum handle) {
    for (auto& waiting : shared()->inquiries) {
        uint32_t mine = DatumGetUInt32(handle);
        waiting.compare_exchange_strong(mine, 0);
    }
}

bool post(dsm_handle handle) {
    for (auto& waiting : shared()->inquiries) {
        uint32_t nobody = 0;
        if (waiting.compare_exchange_strong(nobody, handle)) return true;
    }
    return false;
}

// --- the filter: its size, then its bytes

Size segment_size(base::ByteView filter) {
    return filter.empty() ? kRingSize : kRingSize + sizeof(uint32_t) + filter.size();
}

void put_filter(dsm_segment* segment, base::ByteView filter) {
    if (filter.empty()) return;
    char* place = static_cast<char*>(dsm_segment_address(segment)) + kRingSize;
    auto size = static_cast<uint32_t>(filter.size());
    std::memcpy(place, &size, sizeof size);
    std::memcpy(place + sizeof size, filter.data(), size);
}

base::ByteView get_filter(dsm_segment* segment) {
    Size length = dsm_segment_map_length(segment);
    if (length <= kRingSize + sizeof(uint32_t)) return {};
    const char* place = static_cast<const char*>(dsm_segment_address(segment)) + kRingSize;
    uint32_t size = 0;
    std::memcpy(&size, place, sizeof size);
    return {place + sizeof size, std::min<Size>(size, length - kRingSize - sizeof size)};
}

// --- the broker's side

std::optional<dsm_handle> take_handle() {
    for (auto& waiting : shared()->inquiries) {
        if (waiting.load(std::memory_order_relaxed) == 0) continue;
        uint32_t handle = waiting.exchange(0);
        if (handle != 0) return handle;
    }
    return std::nullopt;
}

}  // namespace

void ask_broker(base::ByteView filter, TakeRecord take, void* context) {
    require_preload();
    dsm_segment* segment = dsm_create(segment_size(filter), 0);
    put_filter(segment, filter);
    shm_mq* ring = shm_mq_create(dsm_segment_address(segment), kRingSize);
    shm_mq_set_receiver(ring, MyProc);
    shm_mq_handle* queue = shm_mq_attach(ring, segment, nullptr);
    dsm_handle handle = dsm_segment_handle(segment);
    on_dsm_detach(segment, withdraw, UInt32GetDatum(handle));

    TimestampTz deadline = new_deadline();
    while (!post(handle)) wait_until(deadline, kFullPollMs);
    wake(Worker::kBroker);
    for (;;) {
        Size size = 0;
        void* data = nullptr;
        shm_mq_result result = shm_mq_receive(queue, &size, &data, true);
        if (result == SHM_MQ_DETACHED) raise_ended();
        if (result == SHM_MQ_WOULD_BLOCK) {
            constexpr long kLookAgainMs = 200;  // whether the broker is still there
            wait_until(deadline, kLookAgainMs);
            continue;
        }
        base::ByteView message(static_cast<const char*>(data), size);
        if (message.empty() || message[0] == kEnd) break;
        take(context, message.substr(1));
        deadline = new_deadline();
        CHECK_FOR_INTERRUPTS();
    }
    shm_mq_detach(queue);
    dsm_detach(segment);
}

std::unique_ptr<Inquiry> Inquiry::next() {
    while (auto handle = take_handle()) {
        std::unique_ptr<Inquiry> inquiry(new Inquiry);
        if (inquiry->attach(*handle)) return inquiry;
    }
    return nullptr;
}

// False when the backend is gone, or cannot be answered: it is told by our leaving its segment.
bool Inquiry::attach(dsm_handle handle) {
    Status attached = guard([this, handle] {
        MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
        segment_ = dsm_attach(handle);
        if (segment_ != nullptr) {
            dsm_pin_mapping(segment_);  // until we let go of it
            auto* ring = static_cast<shm_mq*>(dsm_segment_address(segment_));
            shm_mq_set_sender(ring, MyProc);
            queue_ = shm_mq_attach(ring, segment_, nullptr);
        }
        MemoryContextSwitchTo(before);
    });
    if (queue_ != nullptr) filter_ = get_filter(segment_);
    if (!attached) log(WARNING, "pgmqtt could not answer a backend", attached.error());
    return queue_ != nullptr;
}

Inquiry::~Inquiry() {
    if (segment_ == nullptr) return;
    try {
        Status left = guard([this] {
            if (queue_ != nullptr) shm_mq_detach(queue_);
            dsm_detach(segment_);
        });
        if (!left) log(WARNING, "pgmqtt could not leave a backend's segment", left.error());
    } catch (...) {
        // It is left when the process ends.
    }
}

bool Inquiry::flush() {
    if (message_.empty() || gone_) return true;
    shm_mq_result result = SHM_MQ_DETACHED;
    Status sent =
        guard([this, &result] { result = send_nowait(queue_, message_.data(), message_.size()); });
    if (!sent) log(WARNING, "pgmqtt could not answer a backend", sent.error());
    if (sent && result == SHM_MQ_WOULD_BLOCK) return false;
    gone_ = !sent || result == SHM_MQ_DETACHED;
    message_.clear();
    return true;
}

void Inquiry::send(base::ByteView record) {
    message_.assign(1, kRecord);
    message_.append(record);
    flush();
}

void Inquiry::finish() {
    message_.assign(1, kEnd);
    flush();
}

}  // namespace pgmqtt::pg
