#include "pg/wait.h"

#include <algorithm>

#include "pg/guard.h"
#include "pg/worker.h"

namespace pgmqtt::pg {

WaitSet::WaitSet() : set_(nullptr) {
    value_or_throw(guard([this] {
        set_ = create_wait_event_set(3);
        AddWaitEventToSet(set_, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, nullptr);
        AddWaitEventToSet(set_, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, nullptr, nullptr);
    }));
}

WaitSet::~WaitSet() {
    if (set_ == nullptr) return;
    ::WaitEventSet* set = set_;
    try {
        (void)guard([set] { FreeWaitEventSet(set); });
    } catch (...) {
        // The process ends soon anyway, and its descriptors with it.
    }
}

void WaitSet::add_descriptor(int fd) {
    value_or_throw(
        guard([this, fd] { AddWaitEventToSet(set_, WL_SOCKET_READABLE, fd, nullptr, nullptr); }));
}

WaitSet::Ready WaitSet::wait(long timeout_ms, uint32 wait_event) {
    // Statistics that are still to be flushed do not wait for the next event.
    long ceiling = internal::statistics_due_ms();
    if (ceiling >= 0) timeout_ms = timeout_ms < 0 ? ceiling : std::min(timeout_ms, ceiling);
    ::WaitEvent events[3];
    int count = 0;
    Ready ready;
    value_or_throw(guard([this, timeout_ms, wait_event, &events, &count] {
        count = WaitEventSetWait(set_, timeout_ms, events, 3, wait_event);
        for (int i = 0; i < count; ++i)
            if (events[i].events & WL_LATCH_SET) ResetLatch(MyLatch);
    }));
    ready.timeout = count == 0;
    for (int i = 0; i < count; ++i) {
        if (events[i].events & WL_LATCH_SET) ready.latch = true;
        if (events[i].events & WL_SOCKET_READABLE) ready.descriptor = true;
    }
    return ready;
}

}  // namespace pgmqtt::pg
