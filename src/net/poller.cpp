#include "net/poller.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace pgmqtt::net {

namespace {

constexpr uint32_t kReadEdges = EPOLLIN | EPOLLRDHUP;

bool control(int poller, int operation, int fd, uint64_t token, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    return epoll_ctl(poller, operation, fd, &event) == 0;
}

}  // namespace

Poller::Poller() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

Poller::~Poller() {
    ::close(fd_);
}

bool Poller::watch_connection(int fd, uint64_t token) {
    return control(fd_, EPOLL_CTL_ADD, fd, token, EPOLLET | kReadEdges);
}

bool Poller::watch_listener(int fd, uint64_t token) {
    return control(fd_, EPOLL_CTL_ADD, fd, token, EPOLLIN);
}

void Poller::rewatch_connection(int fd, uint64_t token, bool read, bool write) {
    uint32_t events = EPOLLET;
    if (read) events |= kReadEdges;
    if (write) events |= EPOLLOUT;
    // Fails only for descriptors that are not watched: modifying allocates nothing.
    control(fd_, EPOLL_CTL_MOD, fd, token, events);
}

void Poller::forget(int fd) {
    control(fd_, EPOLL_CTL_DEL, fd, 0, 0);
}

size_t Poller::poll() {
    int count = epoll_wait(fd_, events_.data(), static_cast<int>(events_.size()), 0);
    return count < 0 ? 0 : static_cast<size_t>(count);
}

PollEvent Poller::event(size_t index) const {
    const uint32_t events = events_[index].events;
    constexpr uint32_t kBroken = EPOLLHUP | EPOLLERR;
    PollEvent event;
    event.token = events_[index].data.u64;
    event.readable = (events & (kReadEdges | kBroken)) != 0;
    event.writable = (events & (EPOLLOUT | kBroken)) != 0;
    event.hangup = (events & (EPOLLRDHUP | kBroken)) != 0;
    return event;
}

}  // namespace pgmqtt::net
