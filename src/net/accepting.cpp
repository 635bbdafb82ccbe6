// Taking connections in, and refusing them without spinning.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "net/server_state.h"

namespace pgmqtt::net {

namespace {

constexpr std::chrono::seconds kRetryAccept{1};

int open_reserve() {
    return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

// accept() failed, but took the connection out of its queue: the next call sees another one.
bool concerns_one_connection(int error) {
    switch (error) {
        case EINTR:
        case ECONNABORTED:
        case EPERM:
        case EPROTO:
        case ENOPROTOOPT:
        case EOPNOTSUPP:
        case ENETDOWN:
        case ENETUNREACH:
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case ENONET:
            return true;
        default:
            return false;
    }
}

}  // namespace

Server::State::State(const Limits& initial) : limits(initial), reserve_fd_(open_reserve()) {
    scratch_.reset(new char[kScratchBytes]);
}

Server::State::~State() {
    if (reserve_fd_ >= 0) ::close(reserve_fd_);
}

void Server::State::accept_waiting(Handler& handler) {
    if (listeners.suspended()) return retry_accepting();
    size_t refused = 0;
    const char* why = "";
    for (uint32_t tried = 0; tried < limits.accepts_per_turn && listeners.any_ready(); ++tried) {
        const Listeners::Accepted accepted = listeners.accept();
        const int fd = accepted.fd;
        if (fd >= 0 && table.size() >= limits.max_connections) {
            ::close(fd);
            ++refused;
            why = "too many connections";
        } else if (fd >= 0) {
            if (admit(accepted, handler)) continue;
            ++refused;
            why = "out of memory";
        } else if (errno == EAGAIN || concerns_one_connection(errno)) {
            continue;
        } else {
            why = "no descriptors left";
            const Refused outcome = refuse_with_reserve();
            if (outcome == Refused::kOne) ++refused;
            if (outcome == Refused::kImpossible) suspend_accepting();
        }
    }
    if (refused == 0 && !listeners.suspended()) return;
    try {
        handler.on_refused(refused, why);
    } catch (const std::bad_alloc&) {
        // Nobody's connection: those concerned are gone.
    }
}

bool Server::State::admit(const Listeners::Accepted& accepted, Handler& handler) {
    ConnectionId id;
    try {
        std::unique_ptr<Transport> transport = (*accepted.transport)(accepted.fd);
        reserve_queues();
        id = table.add(transport);
    } catch (const std::bad_alloc&) {
        return false;
    }
    if (!poller.watch_connection(accepted.fd, uint64_t{id.slot} << 32 | id.generation)) {
        table.remove(id.slot);
        return false;
    }
    Connection& connection = table.at(id.slot);
    connection.watching_read = true;
    shake_hands(id.slot);
    try {
        handler.on_accepted(id, peer_address(accepted.peer));
    } catch (const std::bad_alloc&) {
        if (connection.alive()) finish(id.slot, "out of memory");
    }
    return true;
}

void Server::State::reserve_queues() {
    const size_t slots = table.slots() + 1;
    if (closed_.capacity() >= slots) return;
    queue_.reserve(2 * slots);
    serving_.reserve(2 * slots);
    closing_.reserve(2 * slots);
    starved_.reserve(2 * slots);
    closed_.reserve(2 * slots);
}

// Without a descriptor the kernel would keep the client waiting and the listener readable.
Server::State::Refused Server::State::refuse_with_reserve() {
    if (reserve_fd_ < 0) return Refused::kImpossible;
    ::close(reserve_fd_);
    const int fd = listeners.accept().fd;
    const bool nobody = fd < 0 && errno == EAGAIN;
    if (fd >= 0) ::close(fd);
    reserve_fd_ = open_reserve();
    if (nobody) return Refused::kNobody;
    return fd >= 0 ? Refused::kOne : Refused::kImpossible;
}

void Server::State::suspend_accepting() {
    listeners.suspend();
    retry_accept_at_ = base::MonoTime::clock::now() + kRetryAccept;
}

// Whoever waits is reported by the next turn's poll.
void Server::State::retry_accepting() {
    const base::MonoTime now = base::MonoTime::clock::now();
    if (now < retry_accept_at_) return;
    if (reserve_fd_ < 0) reserve_fd_ = open_reserve();
    if (!listeners.resume()) retry_accept_at_ = now + kRetryAccept;
}

}  // namespace pgmqtt::net
