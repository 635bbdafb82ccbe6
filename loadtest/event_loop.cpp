#include "loadtest/event_loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {
namespace {

constexpr size_t kReadBuffer = 1 << 20;
constexpr Nanos kLongestWait = kSecond / 10;  // then whoever turns the loop can look at signals

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), read_buffer_(kReadBuffer) {
    if (epoll_ < 0) throw_errno("epoll_create1", "raise `ulimit -n`");
}

EventLoop::~EventLoop() {
    close(epoll_);
}

void EventLoop::add(int fd, Watched* watched, uint32_t events) {
    epoll_event event{.events = events, .data = {.ptr = watched}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
        throw_errno("epoll_ctl", "raise /proc/sys/fs/epoll/max_user_watches");
    // The address of one that went may be that of a new one: its events of this turn are spurious
    // at worst, and non-blocking sockets do not mind.
    std::erase(gone_, watched);
}

void EventLoop::change(int fd, Watched* watched, uint32_t events) {
    epoll_event event{.events = events, .data = {.ptr = watched}};
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) != 0)
        throw_errno("epoll_ctl", "report this as a bug of loadtest");
}

void EventLoop::remove(int fd, Watched* watched) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    gone_.push_back(watched);
}

void EventLoop::forget(Flushed* flushed) {
    std::erase(to_flush_, flushed);
}

void EventLoop::turn(Nanos deadline) {
    flush_all();
    std::array<epoll_event, 256> events;
    Nanos now = monotonic_now();
    Nanos wait = deadline > now ? std::min(deadline - now, kLongestWait) : 0;
    timespec timeout{static_cast<time_t>(wait / kSecond), static_cast<long>(wait % kSecond)};
    gone_.clear();
    int count =
        epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
    if (count < 0) {
        if (errno == EINTR) return;
        throw_errno("epoll_pwait2", "Linux 5.11 or newer is needed");
    }
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        auto* watched = static_cast<Watched*>(events[i].data.ptr);
        if (!gone_.empty() && std::find(gone_.begin(), gone_.end(), watched) != gone_.end())
            continue;
        watched->on_events(events[i].events);
    }
    flush_all();
}

void EventLoop::flush_all() {
    // A flush may fail and close a connection, whose owner may publish elsewhere: by index.
    for (size_t i = 0; i < to_flush_.size(); ++i) to_flush_[i]->flush();
    to_flush_.clear();
}

}  // namespace pgmqtt::loadtest
