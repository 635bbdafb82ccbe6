// Readiness of sockets. The only file that knows epoll.
//
// Connections are edge-triggered for reading: after a report the kernel forgets them until new
// bytes arrive, so one short read serves a batch of packets without a second read that says "would
// block", a connection whose budget ran out sits in the server's own queue instead of making the
// poller's descriptor readable for nothing, and the kernel does not look again at everything it
// reported last time. Writing is watched only while output is blocked: an armed EPOLLOUT would turn
// every late EPOLLIN, already read, into a wake-up. Listeners are level-triggered, because a turn
// leaves connections in their queue on purpose.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>

namespace pgmqtt::net {

struct PollEvent {
    uint64_t token = 0;
    bool readable = false;
    bool writable = false;
    bool hangup = false;  // end of stream or an error waits behind the bytes
};

class Poller {
   public:
    Poller();  // throws std::system_error
    ~Poller();
    Poller(const Poller&) = delete;

    int fd() const { return fd_; }

    // On failure errno says why. Closing the descriptor ends the watch.
    bool watch_connection(int fd, uint64_t token);
    bool watch_listener(int fd, uint64_t token);

    // Changes what a connection waits for; reports at once what is already so.
    void rewatch_connection(int fd, uint64_t token, bool read, bool write);
    void forget(int fd);

    // What is ready now, never waiting: returns how many events there are. What does not fit stays
    // ready, behind those that did.
    size_t poll();
    PollEvent event(size_t index) const;

   private:
    static constexpr size_t kEventsPerTurn = 1024;

    int fd_;
    std::array<epoll_event, kEventsPerTurn> events_;
};

}  // namespace pgmqtt::net
