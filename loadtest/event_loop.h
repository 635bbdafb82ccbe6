// epoll, and what has to be flushed at the end of each turn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loadtest/clock.h"

namespace pgmqtt::loadtest {

class Watched {
   public:
    virtual void on_events(uint32_t events) = 0;

   protected:
    ~Watched() = default;
};

class Flushed {
   public:
    virtual void flush() = 0;

   protected:
    ~Flushed() = default;
};

class EventLoop {
   public:
    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    void add(int fd, Watched* watched, uint32_t events);
    void change(int fd, Watched* watched, uint32_t events);
    void remove(int fd, Watched* watched);

    // flush() is called once, at the end of this turn.
    void flush_later(Flushed* flushed) { to_flush_.push_back(flushed); }
    void forget(Flushed* flushed);

    // Waits for events until `deadline`, or a moment if that is less; handles them, flushes. Events
    // of one that was removed during the turn are dropped.
    void turn(Nanos deadline);
    void flush_all();

    // One for all connections of this loop: what is left of a packet goes to its connection.
    std::vector<char>& read_buffer() { return read_buffer_; }

   private:
    int epoll_;
    std::vector<Flushed*> to_flush_;
    std::vector<Watched*> gone_;  // removed during this turn
    std::vector<char> read_buffer_;
};

}  // namespace pgmqtt::loadtest
