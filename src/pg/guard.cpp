// The only file with PG_TRY.
#include "pg/guard.h"

extern "C" {
#include <access/xact.h>
#include <mb/pg_wchar.h>
#include <storage/condition_variable.h>
#include <storage/lwlock.h>
#include <utils/memutils.h>
}

#include <algorithm>
#include <new>

namespace pgmqtt::pg {
namespace {

// Longer texts are cut on their way into a server ERROR: the copy must not fail for its size.
constexpr size_t kMaxErrorText = 1024 * 1024;

struct Call {
    void (*fn)(void*);
    void* arg;
    std::exception_ptr* thrown;
};

// Stops C++ exceptions before they reach the frame with PG_TRY, which would be left with
// PG_exception_stack dangling.
void call_catching(const Call& call) noexcept {
    try {
        call.fn(call.arg);
    } catch (...) {
        *call.thrown = std::current_exception();
    }
}

// Copies the current ERROR into `context` and clears the error state. Null when there is no memory
// for the copy. Called in a PG_CATCH block, so this second PG_TRY keeps an ERROR of the copying.
ErrorData* take_error(MemoryContext context) {
    ErrorData* volatile copy = nullptr;
    PG_TRY();
    {
        MemoryContextSwitchTo(context);
        copy = CopyErrorData();
    }
    PG_CATCH();
    { copy = nullptr; }
    PG_END_TRY();
    MemoryContextSwitchTo(context);
    FlushErrorState();
    return copy;
}

struct Outcome {
    bool failed;
    ErrorData* error;  // null when failed: out of memory
};

// No local with a destructor here: this is where longjmp lands.
Outcome try_call(const Call& call) {
    MemoryContext context = CurrentMemoryContext;
    uint32 interrupt_holdoff = InterruptHoldoffCount;
    volatile bool failed = false;
    ErrorData* volatile error = nullptr;
    PG_TRY();
    { call_catching(call); }
    PG_CATCH();
    {
        failed = true;
        error = take_error(context);
    }
    PG_END_TRY();
    MemoryContextSwitchTo(context);
    InterruptHoldoffCount = interrupt_holdoff;
    return {failed, error};
}

// Outside a transaction nobody aborts, so what an abort would let go of is let go of here.
void release_resources() {
    if (IsTransactionOrTransactionBlock()) return;
    LWLockReleaseAll();
    ConditionVariableCancelSleep();
    pgstat_report_wait_end();
}

std::string text_or_empty(const char* text) {
    return text == nullptr ? std::string() : text;
}

void fill_error(const ErrorData& data, Error& error) {
    error.sqlstate = data.sqlerrcode;
    error.message = text_or_empty(data.message);
    error.detail = text_or_empty(data.detail);
    error.hint = text_or_empty(data.hint);
    error.context = text_or_empty(data.context);
    error.position = data.internalpos;
    error.query = text_or_empty(data.internalquery);
}

void fill_out_of_memory(Error& error) {
    error.sqlstate = ERRCODE_OUT_OF_MEMORY;
    error.message = "out of memory";
}

// What an entry function brings out of its catch block: no destructor, memory of the server's that
// is not asked for with an ERROR as the answer.
struct PlainError {
    int sqlstate;
    const char* message;
    const char* detail;
    const char* hint;
    const char* context;
    int position;
    const char* query;
};

const char* plain_copy(const char* text, size_t size) {
    if (size == 0) return nullptr;
    if (size > kMaxErrorText)
        size = static_cast<size_t>(
            pg_mbcliplen(text, static_cast<int>(kMaxErrorText),
                         static_cast<int>(kMaxErrorText) - MAX_MULTIBYTE_CHAR_LEN));
    char* copy = static_cast<char*>(palloc_extended(size + 1, MCXT_ALLOC_NO_OOM));
    if (copy == nullptr) return nullptr;
    std::copy_n(text, size, copy);
    copy[size] = '\0';
    return copy;
}

const char* plain_copy(const std::string& text) {
    return plain_copy(text.data(), text.size());
}

PlainError plain_error(const Error& error) {
    return {error.sqlstate,         plain_copy(error.message), plain_copy(error.detail),
            plain_copy(error.hint), plain_copy(error.context), error.position,
            plain_copy(error.query)};
}

PlainError plain_error(int sqlstate, const char* message) {
    return {sqlstate, plain_copy(message, strlen(message)), nullptr, nullptr, nullptr, 0, nullptr};
}

[[noreturn]] void raise_plain(const PlainError& error) {
    // The context was collected where the ERROR happened; the callbacks would add it again.
    if (error.context != nullptr) error_context_stack = nullptr;
    ereport(ERROR,
            (errcode(error.sqlstate != 0 ? error.sqlstate : ERRCODE_INTERNAL_ERROR),
             errmsg_internal("%s", error.message != nullptr ? error.message : "out of memory"),
             error.detail != nullptr ? errdetail_internal("%s", error.detail) : 0,
             error.hint != nullptr ? errhint("%s", error.hint) : 0,
             error.query != nullptr ? internalerrposition(error.position) : 0,
             error.query != nullptr ? internalerrquery(error.query) : 0,
             error.context != nullptr ? errcontext("%s", error.context) : 0));
    pg_unreachable();
}

// The frames of `body` are gone when this returns; so is the exception.
bool call_entry(Datum (*body)(FunctionCallInfo), FunctionCallInfo fcinfo, Datum& result,
                PlainError& error) {
    try {
        result = body(fcinfo);
        return true;
    } catch (const Raised& raised) {
        error = plain_error(raised.error());
    } catch (const std::bad_alloc&) {
        error = plain_error(ERRCODE_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& exception) {
        error = plain_error(ERRCODE_INTERNAL_ERROR, exception.what());
    } catch (...) {
        error = plain_error(ERRCODE_INTERNAL_ERROR, "unknown C++ exception");
    }
    return false;
}

}  // namespace

std::string Error::sqlstate_text() const {
    std::string text(5, '0');
    for (size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>(PGUNSIXBIT(sqlstate >> (6 * i)));
    return text;
}

namespace internal {

bool run_guarded(void (*fn)(void*), void* arg, Error& error) {
    std::exception_ptr thrown;
    Outcome outcome = try_call({fn, arg, &thrown});
    if (thrown) std::rethrow_exception(thrown);
    if (!outcome.failed) return true;
    release_resources();
    if (outcome.error == nullptr) {
        fill_out_of_memory(error);
    } else {
        fill_error(*outcome.error, error);
        FreeErrorData(outcome.error);
    }
    return false;
}

Datum run_entry(Datum (*body)(FunctionCallInfo), FunctionCallInfo fcinfo) {
    Datum result = 0;
    PlainError error{};
    if (!call_entry(body, fcinfo, result, error)) raise_plain(error);
    return result;
}

}  // namespace internal

void raise(const Error& error) {
    raise_plain(plain_error(error));
}

Error make_error(int sqlstate, std::string message, std::string detail, std::string hint) {
    Error error;
    error.sqlstate = sqlstate;
    error.message = std::move(message);
    error.detail = std::move(detail);
    error.hint = std::move(hint);
    return error;
}

}  // namespace pgmqtt::pg
