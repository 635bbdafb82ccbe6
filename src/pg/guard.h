// The line between two kinds of stack unwinding. PostgreSQL leaves by longjmp, which skips
// destructors; C++ leaves by exception, which does not know PostgreSQL's frames. Neither may cross
// the other's frames. So every call of a server function that may raise an ERROR happens inside
// guard() (or transaction(), which is built on it), or in the C shell of an entry function.
//
// Inside a guard: locals are trivially destructible, or their scope contains no server call that
// may raise. Objects with destructors live above the guard; the closure captures them by reference,
// which keeps the closure itself trivially destructible (checked).
#pragma once

#include "pg/backend.h"

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace pgmqtt::pg {

// A server ERROR as a value.
struct Error {
    int sqlstate = 0;  // as MAKE_SQLSTATE packs it
    std::string message;
    std::string detail;
    std::string hint;
    std::string context;
    // Where the fault is in a statement that was run or prepared inside: the character, from 1, and
    // the text of the statement. 0: not known.
    int position = 0;
    std::string query;

    // "22P02"
    std::string sqlstate_text() const;
};

using Status = base::Status<Error>;
template <class T>
using Result = base::Result<T, Error>;

namespace internal {
// Runs fn(arg) under PG_TRY. On ERROR: copies it, flushes the error state, restores the memory
// context, returns false. A C++ exception from fn is carried over the server's frames and rethrown.
// Does not abort any transaction: that is transaction()'s and subtransaction()'s work.
bool run_guarded(void (*fn)(void*), void* arg, Error& error);
}  // namespace internal

// Runs `body`; a server ERROR in it becomes a value. 8 ns when nothing happens, 3 us on error.
template <class Body>
Status guard(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_trivially_destructible_v<Plain>,
                  "a longjmp out of the guard would skip the closure's destructor");
    Error error;
    bool ok = internal::run_guarded([](void* arg) { (*static_cast<Plain*>(arg))(); },
                                    const_cast<void*>(static_cast<const void*>(&body)), error);
    if (!ok) return base::fail(std::move(error));
    return base::Done{};
}

// Ends the C++ part of an entry function: raises `error` as a server ERROR with all its parts. To
// be called only from frames without live destructors: see PGMQTT_FUNCTION.
[[noreturn]] void raise(const Error& error);

// An exception that carries a pg::Error through C++ frames up to the entry shell.
class Raised : public std::exception {
   public:
    explicit Raised(Error error) : error_(std::move(error)) {}
    const Error& error() const { return error_; }
    const char* what() const noexcept override { return error_.message.c_str(); }

   private:
    Error error_;
};

// Throws the error of a failed guard, so that destructors run on the way to the entry shell.
inline void value_or_throw(Status status) {
    if (!status) throw Raised(std::move(status.error()));
}

// Makes an Error of our own: ours to raise or to throw.
Error make_error(int sqlstate, std::string message, std::string detail = {}, std::string hint = {});

namespace internal {
// Runs body; whatever C++ throws is turned into an ERROR after all its frames are gone.
Datum run_entry(Datum (*body)(FunctionCallInfo), FunctionCallInfo fcinfo);
}  // namespace internal

}  // namespace pgmqtt::pg

// Defines the SQL-callable C function `name` whose body is `Datum body(FunctionCallInfo fcinfo)`.
// The body may throw; server calls in it that may raise go through guard(), or stand where no
// destructor is alive.
#define PGMQTT_FUNCTION(name)                                            \
    static Datum name##_body(FunctionCallInfo fcinfo);                   \
    _Pragma("GCC visibility push(default)") extern "C" {                 \
        PG_FUNCTION_INFO_V1(name);                                       \
        Datum name(PG_FUNCTION_ARGS) {                                   \
            return pgmqtt::pg::internal::run_entry(name##_body, fcinfo); \
        }                                                                \
    }                                                                    \
    _Pragma("GCC visibility pop") static Datum name##_body([[maybe_unused]] FunctionCallInfo fcinfo)
