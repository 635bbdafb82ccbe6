// Real sockets on loopback: a server driven by hand, a handler that records, clients.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/server.h"

namespace pgmqtt::net::test {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeadline{10};

class Socket {
   public:
    explicit Socket(int fd = -1) : fd_(fd) {}
    ~Socket() { close(); }
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }

    int fd() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }

   private:
    int fd_;
};

inline sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Bound and listening, to hold a port or to learn a free one.
inline std::pair<Socket, uint16_t> occupy_port() {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    EXPECT_EQ(0, bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address));
    EXPECT_EQ(0, ::listen(socket.fd(), 1));
    socklen_t length = sizeof address;
    getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
    return {std::move(socket), ntohs(address.sin_port)};
}

inline bool readable(int fd, int timeout_ms) {
    pollfd poll_for{fd, POLLIN, 0};
    return ::poll(&poll_for, 1, timeout_ms) > 0;
}

// Nonblocking: the test drives both ends from one thread.
class Client {
   public:
    Client() = default;
    explicit Client(uint16_t port, int receive_buffer = 0)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
        if (receive_buffer > 0) {
            setsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        }
        const sockaddr_in address = loopback(port);
        const int result =
            connect(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        EXPECT_TRUE(result == 0 || errno == EINPROGRESS) << std::strerror(errno);
    }

    int fd() const { return socket_.fd(); }

    // What the socket takes now.
    size_t send(const std::string& bytes) {
        const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        return sent < 0 ? 0 : static_cast<size_t>(sent);
    }

    // Collects what is there into `received`.
    void receive(size_t at_most = SIZE_MAX) {
        char buffer[65536];
        while (at_most > 0 && !ended && !reset) {
            const ssize_t count = recv(fd(), buffer, std::min(at_most, sizeof buffer), 0);
            if (count < 0) {
                reset = errno != EAGAIN;
                return;
            }
            ended = count == 0;
            received.append(buffer, static_cast<size_t>(count));
            at_most -= static_cast<size_t>(count);
        }
    }

    void half_close() { ::shutdown(fd(), SHUT_WR); }
    void close() { socket_.close(); }
    // The peer sees a reset.
    void abort() {
        const linger at_once{1, 0};
        setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        socket_.close();
    }

    std::string received;
    bool ended = false;
    bool reset = false;

   private:
    Socket socket_;
};

class Recorder : public Handler {
   public:
    struct Peer {
        PeerAddress address;
        std::string input;  // consumed
        base::Outbox outbox;
        size_t calls = 0;
        size_t largest = 0;  // view shown
        int closed = 0;
        int drained = 0;
        std::string reason;
    };

    void on_accepted(ConnectionId id, const PeerAddress& address) override {
        enter();
        EXPECT_EQ(nullptr, find(id)) << "id given twice";
        auto peer = std::make_unique<Peer>();
        peer->address = address;
        peers[{id.slot, id.generation}] = std::move(peer);
        accepted.push_back(id);
        if (accepting) accepting(id);
        inside = false;
    }

    size_t on_bytes(ConnectionId id, base::ByteView bytes) override {
        enter();
        Peer& peer = at(id);
        EXPECT_EQ(0, peer.closed) << "bytes after the end";
        ++peer.calls;
        peer.largest = std::max(peer.largest, bytes.size());
        const size_t consumed = reading ? reading(id, bytes) : bytes.size();
        peer.input.append(bytes.substr(0, consumed));
        inside = false;
        return consumed;
    }

    void on_closed(ConnectionId id, const std::string& reason) override {
        enter();
        Peer& peer = at(id);
        ++peer.closed;
        peer.reason = reason;
        if (closing) closing(id);
        inside = false;
    }

    void on_drained(ConnectionId id) override {
        enter();
        EXPECT_EQ(0, at(id).closed);
        ++at(id).drained;
        if (draining) draining(id);
        inside = false;
    }

    base::Outbox* outbox(ConnectionId id) override {
        Peer* peer = find(id);
        return peer == nullptr ? nullptr : &peer->outbox;
    }

    void on_refused(size_t count, const std::string& why) override {
        enter();
        ++refusals;
        refused += count;
        refusal = why;
        inside = false;
    }

    Peer* find(ConnectionId id) {
        auto found = peers.find({id.slot, id.generation});
        return found == peers.end() ? nullptr : found->second.get();
    }
    Peer& at(ConnectionId id) { return *peers.at({id.slot, id.generation}); }
    Peer& nth(size_t index) { return at(accepted.at(index)); }

    std::function<void(ConnectionId)> accepting;
    std::function<size_t(ConnectionId, base::ByteView)> reading;
    std::function<void(ConnectionId)> closing;
    std::function<void(ConnectionId)> draining;

    std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Peer>> peers;
    std::vector<ConnectionId> accepted;
    int refusals = 0;
    size_t refused = 0;
    std::string refusal;
    bool inside = false;  // a callback; reset by tests whose callbacks throw

   private:
    void enter() {
        EXPECT_FALSE(inside) << "one callback inside another";
        inside = true;
    }
};

class ServerTest : public testing::Test {
   protected:
    void SetUp() override { start(Limits{}); }

    void start(const Limits& limits) {
        server = std::make_unique<Server>(limits);
        for (int attempt = 0; attempt < 20; ++attempt) {
            port = occupy_port().second;
            if (server->listen({{"127.0.0.1", port}})) return;
        }
        FAIL() << "no free port";
    }

    // Turns, as the broker's loop would make them, until `done`; false when time is over.
    bool run_until(const std::function<bool()>& done) {
        const auto deadline = Clock::now() + kDeadline;
        while (!done()) {
            if (Clock::now() > deadline) return false;
            const int due = server->linger_deadline_ms();
            const int wait = server->has_backlog() ? 0 : due < 0 ? 1 : std::min(due, 1);
            readable(server->poll_fd(), wait);
            server->turn(handler);
        }
        return true;
    }

    // Nothing to do and nothing that would wake the loop.
    bool idle() { return !readable(server->poll_fd(), 0) && !server->has_backlog(); }

    // What has arrived is dealt with. A server that never comes to rest fails here.
    bool comes_to_rest() {
        int turns = 0;
        while (!idle() && turns < 1000) {
            server->turn(handler);
            ++turns;
        }
        return turns < 1000 && !readable(server->poll_fd(), 20);
    }

    std::pair<Client, ConnectionId> connected(int receive_buffer = 0) {
        const size_t before = handler.accepted.size();
        Client client(port, receive_buffer);
        EXPECT_TRUE(run_until([&] { return handler.accepted.size() > before; }));
        return {std::move(client), handler.accepted.back()};
    }

    void write(ConnectionId id, const std::string& bytes) {
        handler.at(id).outbox.tail().append(bytes);
        server->flush(id, handler);
    }

    std::unique_ptr<Server> server;
    Recorder handler;
    uint16_t port = 0;
};

// Every position is recognisable, so a lost, doubled or misplaced byte shows.
inline std::string pattern(size_t size, size_t from = 0) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) {
        const size_t at = from + i;
        bytes[i] = static_cast<char>((at * 2654435761u) >> 13);
    }
    return bytes;
}

}  // namespace pgmqtt::net::test
