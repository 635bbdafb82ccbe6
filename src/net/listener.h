// Listening sockets: addresses to bind, and accepting from them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/poller.h"
#include "net/server.h"

namespace pgmqtt::net {

// One address to bind.
struct Endpoint {
    sockaddr_storage address{};  // zero beyond `length`
    socklen_t length = 0;
    std::string host;  // as configured: for messages
    uint16_t port = 0;
    TransportFactory transport;
    // One of the pair behind a name: a machine that lacks its address family is not an error.
    bool optional = false;

    bool same_address(const Endpoint& other) const;
};

// "localhost" is both loopbacks, "*" every IPv4 and IPv6 address; all else must be numeric, so
// listening never waits for a name server.
base::Result<std::vector<Endpoint>, std::string> resolve(const ListenAddress& address);

PeerAddress peer_address(const sockaddr_storage& address);

class Listeners {
   public:
    explicit Listeners(Poller& poller) : poller_(poller) {}
    ~Listeners() { close_all(); }
    Listeners(const Listeners&) = delete;

    base::Status<std::string> listen(const std::vector<ListenAddress>& addresses);
    void close_all();
    bool empty() const { return open_.empty(); }

    // What the poller says about a listener. Tokens of closed ones are unknown and ignored.
    void mark_ready(uint32_t token);
    bool any_ready() const;

    // While suspended, connections stay in the kernel's queue and wake nobody.
    void suspend();
    // False when the poller took not all of them back: still suspended.
    bool resume();
    bool suspended() const { return suspended_; }

    // Takes one connection from the ready listeners, in turns. The descriptor is -1 when there is
    // none: errno is EAGAIN when nobody waits, and accept()'s otherwise.
    struct Accepted {
        int fd = -1;
        sockaddr_storage peer{};
        const TransportFactory* transport = nullptr;  // good until listen()
    };
    Accepted accept();

    // In a poller token's upper half: no connection has this slot.
    static constexpr uint32_t kTokenSlot = UINT32_MAX;

   private:
    struct Listener {
        Endpoint endpoint;
        int fd = -1;
        uint32_t token = 0;
        bool ready = false;
    };

    // Empty on success.
    std::string open(const Endpoint& endpoint, int& error);
    bool watch(const Listener& listener);

    Poller& poller_;
    std::vector<Listener> open_;
    size_t turn_ = 0;  // whose turn it is in accept()
    uint32_t next_token_ = 0;
    bool suspended_ = false;
};

}  // namespace pgmqtt::net
