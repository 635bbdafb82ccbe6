// What paho's threads have to say, until the event loop asks.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "loadtest/clock.h"

namespace pgmqtt::loadtest {

struct PahoEvent {
    enum class Kind : uint8_t {
        kConnected,
        kSubscribed,
        kDelivery,
        kAcknowledged,
        kWritten,
        kClosed
    };

    Kind kind;
    bool fine = true;
    uint64_t token = 0;     // or the Receive Maximum of a CONNACK
    std::string text = {};  // a reason, or the topic
    std::string payload = {};
    uint8_t qos = 0;
    bool retain = false;
    bool dup = false;
    Nanos at = 0;
};

// Never freed: a callback may still be under way when its client goes. One per client object.
struct PahoInbox {
    int event_fd = -1;
    std::mutex mutex;
    std::vector<PahoEvent> events;
    bool closed = true;  // of a client that disconnected: nothing is put in

    static PahoInbox* make();

    void put(PahoEvent event);
    std::vector<PahoEvent> take();
    void set_closed(bool is_closed);
};

}  // namespace pgmqtt::loadtest
