#include "store/trouble.h"

#include <algorithm>
#include <utility>

#include "pg/extension.h"
#include "pg/log.h"
#include "store/blockers.h"

namespace pgmqtt::store {
namespace {

// What fails (disk full, read only) is tried again after this, doubling.
constexpr std::chrono::milliseconds kFirstRetry{100};
constexpr std::chrono::milliseconds kLastRetry{10000};
// A lock was waited for already, until lock_timeout; nothing is lost by trying again soon.
constexpr std::chrono::milliseconds kLockRetry{20};
// Longer than that it is not waited for without a word.
constexpr std::chrono::milliseconds kLockPatience{5000};

}  // namespace

void Trouble::failed(const pg::Error& error) {
    Clock::time_point now = Clock::now();
    if (error.sqlstate == ERRCODE_LOCK_NOT_AVAILABLE) {
        if (locked_since_ == Clock::time_point{}) locked_since_ = now;
        retry_at_ = now + kLockRetry;
        if (!told_ && now >= locked_since_ + kLockPatience) tell(error, lock_holders());
        return;
    }
    delay_ = delay_.count() == 0 ? kFirstRetry : std::min(delay_ * 2, kLastRetry);
    retry_at_ = now + delay_;
    if (!told_) tell(error, error.detail);
}

// Not what only says that the extension has gone.
void Trouble::tell(pg::Error error, std::string detail) {
    if (!pg::extension_exists()) return;
    told_ = true;
    error.detail = std::move(detail);
    pg::log(WARNING, std::string("pgmqtt store could not ") + what_ + "; " + consequence_, error);
}

void Trouble::over() {
    if (told_) pg::log(LOG, std::string("pgmqtt store can ") + what_ + " again");
    told_ = false;
    delay_ = {};
    locked_since_ = {};
}

}  // namespace pgmqtt::store
