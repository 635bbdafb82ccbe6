#include "loadtest/stop.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

namespace pgmqtt::loadtest {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
// timeout(1) sends its signal to the process, then to the group: that is one request.
constexpr Nanos kTogether = 3 * kSecond / 10;
constexpr Nanos kShortDrain = 2 * kSecond;

std::atomic<int> first_signal = 0;

const char* name_of(int signal) {
    return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

void wait_for_signals(sigset_t signals) {
    Nanos first_at = 0;
    while (true) {
        int signal = 0;
        if (sigwait(&signals, &signal) != 0) continue;
        if (first_at != 0 && monotonic_now() - first_at > kTogether) _exit(128 + signal);
        if (first_at != 0) continue;
        first_at = monotonic_now();
        first_signal = signal;
        std::fprintf(stderr,
                     "loadtest: %s: removing what the run made; once more ends it at once\n",
                     name_of(signal));
    }
}

}  // namespace

void watch_signals() {
    // Whoever reads the output may leave before the run has cleaned up.
    std::signal(SIGPIPE, SIG_IGN);
    sigset_t signals;
    sigemptyset(&signals);
    bool any = false;
    for (int signal : kSignals) {
        struct sigaction action {};
        if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
        sigaddset(&signals, signal);
        any = true;
    }
    if (!any) return;
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([signals] { wait_for_signals(signals); }).detach();
}

int stop_signal() {
    return first_signal.load(std::memory_order_relaxed);
}

std::string stop_reason() {
    return std::string("interrupted by ") + name_of(stop_signal());
}

bool Patience::lasts(uint64_t moved) {
    Nanos now = monotonic_now();
    if (moved != seen_) progress_ = now;
    seen_ = moved;
    if (gives_up()) {
        if (stopped_ == 0) stopped_ = now;
        if (now - stopped_ >= kShortDrain) return false;
    }
    return now - progress_ < most_;
}

}  // namespace pgmqtt::loadtest
