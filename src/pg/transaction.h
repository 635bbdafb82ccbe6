// Transactions of a worker, and subtransactions inside them.
#pragma once

#include "pg/guard.h"

#include <csignal>

namespace pgmqtt::pg {

// What a commit waits for, apart from itself.
enum class CommitWait {
    // The flush of its WAL, and standbys, as synchronous_commit asks; where that is off, its write.
    kFlush,
    // That the operating system has its WAL: the end of any process does not undo it.
    kWrite,
    kNothing,
};

struct TransactionOptions {
    bool read_only = false;
    CommitWait wait = CommitWait::kFlush;
    const char* activity = nullptr;  // pg_stat_activity.query while it runs
};

// Starts a transaction, connects SPI, pushes a snapshot, runs `body` in a memory context of its own
// and commits. On ERROR (in the body or at commit) or on an exception: aborts, so nothing of the
// body's writes stays. After it, memory context and activity are as before.
template <class Body>
Status transaction(const TransactionOptions& options, Body&& body);

// A savepoint around `body` inside transaction(). On ERROR: rolled back, the error is a value, and
// the transaction goes on.
template <class Body>
Status subtransaction(Body&& body);

// Acts as `role` (pg_authid oid) in a security-restricted operation with `search_path` until the
// scope ends; for expressions and statements that belong to someone. Trivial destructor by design:
// on ERROR the (sub)transaction's abort restores both.
struct ActAs {
    Oid saved_role;
    int saved_context;
    int guc_nest_level;
};
ActAs act_as(Oid role, const char* search_path);  // may raise: call inside a guard
void act_as_before(const ActAs& saved);

namespace internal {
// Set by a worker's signal handler when it cancels what still runs shutdown_timeout after SIGTERM.
// A transaction that should have been flushed is then reported as failed even if it was committed.
extern volatile sig_atomic_t cancelled_for_shutdown;

bool run_transaction(const TransactionOptions& options, void (*fn)(void*), void* arg, Error& error);
bool run_subtransaction(void (*fn)(void*), void* arg, Error& error);

template <class Runner, class Body>
Status run_body(Runner runner, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_trivially_destructible_v<Plain>,
                  "a longjmp out of the transaction would skip the closure's destructor");
    Error error;
    bool ok = runner([](void* arg) { (*static_cast<Plain*>(arg))(); },
                     const_cast<void*>(static_cast<const void*>(&body)), error);
    if (!ok) return base::fail(std::move(error));
    return base::Done{};
}
}  // namespace internal

template <class Body>
Status transaction(const TransactionOptions& options, Body&& body) {
    return internal::run_body(
        [&options](void (*fn)(void*), void* arg, Error& error) {
            return internal::run_transaction(options, fn, arg, error);
        },
        std::forward<Body>(body));
}

template <class Body>
Status subtransaction(Body&& body) {
    return internal::run_body(internal::run_subtransaction, std::forward<Body>(body));
}

}  // namespace pgmqtt::pg
