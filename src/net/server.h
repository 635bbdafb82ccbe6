// Sockets: listeners, connections, one poller. Knows bytes, not MQTT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/input.h"
#include "base/outbox.h"
#include "base/result.h"

namespace pgmqtt::net {

using base::ConnectionId;

struct PeerAddress {
    std::string address;  // numeric, without port; IPv4-mapped IPv6 shown as IPv4
    uint16_t port = 0;
    bool loopback = false;
};

// What the loop's owner does with what the sockets say. Called from Server::turn() only (outbox()
// also from flush()). Every callback may call any method of the server but turn(), with any id:
// dead ones are ignored. std::bad_alloc thrown by a callback ends the connection it was about.
class Handler {
   public:
    virtual void on_accepted(ConnectionId id, const PeerAddress& peer) = 0;
    // Returns how many bytes were consumed; the rest is shown again with more behind it. Call
    // Server::pause() to stop being called for this connection.
    virtual size_t on_bytes(ConnectionId id, base::ByteView bytes) = 0;
    // The peer closed, an error, or our close is complete: once for each on_accepted(), even if
    // that threw, and never while another callback runs. The id is dead from now on.
    virtual void on_closed(ConnectionId id, const std::string& reason) = 0;
    // Writable again after output was blocked; what fitted of the outbox was sent.
    virtual void on_drained(ConnectionId id) = 0;
    virtual base::Outbox* outbox(ConnectionId id) = 0;
    // Connections refused (limit reached, no descriptors): once per turn at most. A count of 0 says
    // that accepting is suspended until a connection ends, or for a second.
    virtual void on_refused(size_t count, const std::string& reason) = 0;

   protected:
    ~Handler() = default;
};

struct Limits {
    uint32_t max_connections = 10000;
    size_t read_budget = 256 << 10;  // bytes read per connection and turn
    size_t turn_budget = 4 << 20;    // the same of all together, shared evenly: bounds the turn
    size_t max_input = 1 << 20;      // bytes buffered for one incomplete packet
    // Bytes buffered for all of them. Above it whoever holds more than an even share of half of
    // this is not read, but for one at a time, so that packets go on to become complete. At worst
    // twice this, 8 KiB a connection and max_input are buffered (in blocks of up to twice as much).
    size_t max_input_total = 64 << 20;
    uint32_t stall_ms = 2000;  // what that one may take, or it ends
    uint32_t accepts_per_turn = 64;
    uint32_t linger_ms = 1000;  // after our close: drain the peer's bytes so an RST eats nothing
};

class Transport;

// Wraps an accepted socket, which it owns at once, also when it throws.
using TransportFactory = std::function<std::unique_ptr<Transport>(int fd)>;

struct ListenAddress {
    std::string host;  // "localhost", numeric, or "*"
    uint16_t port = 0;
    TransportFactory transport = nullptr;  // of connections accepted from now on; null: TCP
};

class Server final : public base::Input {
   public:
    explicit Server(const Limits& limits);
    ~Server();
    Server(const Server&) = delete;

    void set_limits(const Limits& limits);

    // Opens what is new, closes what is gone, keeps what stays. On failure says which address and
    // why; the addresses that did open stay open. Call again to retry.
    base::Status<std::string> listen(const std::vector<ListenAddress>& addresses);
    bool listening() const;
    void stop_listening();

    // Readable when turn() has something to do: nest it in another wait set.
    int poll_fd() const;

    // One turn: waits for nothing; accepts, reads until would-block or budget, calls the handler.
    // Connections whose budget ran out are taken up next turn: has_backlog() is true then.
    void turn(Handler& handler);
    bool has_backlog() const;

    // Sends the outbox now as far as the socket takes it; what is left goes when it is writable.
    // On error the connection ends in the next turn(), or a later one if the peer's last bytes take
    // longer to read.
    void flush(ConnectionId id, Handler& handler);

    // While paused, what arrives stays in the kernel and wakes the loop once at most. So a peer's
    // end is noticed after resume() only, in order behind its bytes.
    void pause(ConnectionId id);
    void resume(ConnectionId id);

    // Sends what the outbox holds, shuts down writing, drains reading, then on_closed(). Bounded by
    // linger_ms: call turn() when linger_deadline_ms() is due. Keep the outbox until on_closed().
    void close(ConnectionId id);
    // Until turn() is due though poll_fd() is not readable: a lingering connection's end, or
    // another try to accept after descriptors ran out; -1: never.
    int linger_deadline_ms() const;

    // Inside on_bytes(), of the bytes that are shown.
    void expect(size_t size) override;
    base::KeptInput keep(size_t bytes) override;

    size_t connections() const;
    size_t input_bytes() const;  // buffered, all connections

   private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace pgmqtt::net
