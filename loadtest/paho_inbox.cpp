#include "loadtest/paho_inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {

PahoInbox* PahoInbox::make() {
    static std::mutex guard;
    static std::deque<PahoInbox> inboxes;
    std::lock_guard lock(guard);
    PahoInbox& inbox = inboxes.emplace_back();
    inbox.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (inbox.event_fd < 0) throw_errno("eventfd", "raise `ulimit -n`");
    return &inbox;
}

void PahoInbox::put(PahoEvent event) {
    event.at = monotonic_now();
    std::lock_guard lock(mutex);
    if (closed) return;
    events.push_back(std::move(event));
    if (events.size() != 1) return;
    uint64_t one = 1;
    // It cannot be full: take() reads it before the next first event.
    [[maybe_unused]] ssize_t written = write(event_fd, &one, sizeof one);
}

std::vector<PahoEvent> PahoInbox::take() {
    std::lock_guard lock(mutex);
    uint64_t count;
    [[maybe_unused]] ssize_t got = read(event_fd, &count, sizeof count);
    return std::move(events);
}

void PahoInbox::set_closed(bool is_closed) {
    std::lock_guard lock(mutex);
    closed = is_closed;
    events.clear();
}

}  // namespace pgmqtt::loadtest
