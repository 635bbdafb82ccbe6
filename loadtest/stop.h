// SIGINT, SIGTERM and SIGHUP: the first asks the run to come to its end, in order; the next one
// ends the process at once.
#pragma once

#include "loadtest/clock.h"
#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {

// To be called before there is any other thread: all of them leave these signals to the one that is
// made here. A signal that was ignored from the start (nohup, a job of a script) stays so.
void watch_signals();

// The signal that asked for the end, or 0.
int stop_signal();
inline bool is_stopping() {
    return stop_signal() != 0;
}
// "interrupted by SIGINT"
std::string stop_reason();

// The run was asked to end while it waited for something that it cannot do without.
class Interrupted : public LoadError {
   public:
    Interrupted() : LoadError(stop_reason()) {}
};

// What removes the traces of a run goes on.
enum class OnStop : bool { kGiveUp, kGoOn };

// How long to wait for something that comes piece by piece: as long as pieces come, and a little
// longer; but shortly when the run has been asked to end.
class Patience {
   public:
    explicit Patience(Nanos most, OnStop on_stop = OnStop::kGiveUp)
        : most_(most), on_stop_(on_stop), progress_(monotonic_now()) {}

    // `moved` changes with each piece.
    bool lasts(uint64_t moved);
    bool gives_up() const { return on_stop_ == OnStop::kGiveUp && is_stopping(); }

   private:
    Nanos most_;
    OnStop on_stop_;
    Nanos progress_;
    uint64_t seen_ = 0;
    Nanos stopped_ = 0;
};

}  // namespace pgmqtt::loadtest
