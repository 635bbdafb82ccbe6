// The clients of one thread, and how they pass a run.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "loadtest/event_loop.h"
#include "loadtest/pacer.h"
#include "loadtest/roles.h"
#include "loadtest/stop.h"

namespace pgmqtt::loadtest {

class Party {
   public:
    // Thread `index` of options.threads: its share of publishers, and the subscribers that hear
    // them.
    Party(const Options& options, uint32_t index);

    // Both throw LoadError when somebody cannot come.
    void gather_subscribers();
    void gather_publishers();

    // Sends as the options say (closed loop, or paced when there is a rate) until `end`; calls
    // `at_second` at each multiple of a second after `begin`. False if nobody is left to go on; a
    // signal ends it as the end of its time does.
    bool run(Nanos begin, Nanos end, const std::function<void(Nanos)>& at_second);
    // Until everything sent has come, or nothing has come for options.drain seconds.
    void drain();
    void count_lost();
    // Removes what the clients made.
    void leave();

    Meter meter;
    Attendance attendance;

   private:
    void turn(Nanos deadline);
    void pace();
    bool anybody_left() const;
    bool is_settled() const;
    uint64_t in_flight() const;

    const Options& options_;
    uint32_t index_;
    bool paced_;
    EventLoop loop_;
    std::vector<Publisher*> ready_;
    std::vector<Publisher*> filling_;
    std::vector<std::unique_ptr<Publisher>> publishers_;
    std::vector<std::unique_ptr<Subscriber>> subscribers_;
    std::optional<Pacer> pacer_;
    size_t next_publisher_ = 0;
    uint64_t first_arrivals_ = 0;
};

// Connects `count` clients through connect(i), at most `concurrency` at once. Throws LoadError when
// one cannot come, and Interrupted unless told to go on.
void gather(EventLoop& loop, Attendance& attendance, size_t count, size_t concurrency,
            const std::function<void(size_t)>& connect, OnStop on_stop = OnStop::kGiveUp);

}  // namespace pgmqtt::loadtest
