// What a session can see of the boundary: guards, exceptions, subtransactions, values, events.
#include "pg/backend.h"

extern "C" {
#include <access/xact.h>
#include <catalog/pg_type.h>
#include <executor/spi.h>
#include <utils/array.h>
#include <utils/builtins.h>
}

#include <new>
#include <stdexcept>
#include <string>

#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/shared.h"
#include "pg/statement.h"
#include "pg/transaction.h"

namespace pg = pgmqtt::pg;

namespace {

int destroyed = 0;

struct Counted {
    ~Counted() { ++destroyed; }
    std::string ballast = std::string(100, 'x');
};

void raise_division_by_zero() {
    ereport(ERROR, (errcode(ERRCODE_DIVISION_BY_ZERO), errmsg("boundary division"),
                    errdetail("of nothing"), errhint("do not"), errcontext("in a test")));
}

// Two frames with destructors between the guard and the one who takes the error as an exception.
void inner() {
    Counted one;
    Counted two;
    pg::value_or_throw(pg::guard([] { raise_division_by_zero(); }));
}

void outer() {
    Counted three;
    inner();
}

Datum text_result(const std::string& line) {
    return pg::text_datum(line);
}

}  // namespace

// Runs n ERRORs through guards below objects with destructors; returns how many were destroyed
// (3n).
PGMQTT_FUNCTION(boundary_destructors) {
    destroyed = 0;
    int count = PG_GETARG_INT32(0);
    for (int i = 0; i < count; ++i) {
        try {
            outer();
        } catch (const pg::Raised& raised) {
            if (raised.error().sqlstate_text() != "22012") throw;
        }
    }
    PG_RETURN_INT32(destroyed);
}

// Leaves by an exception, or by an error that came out of a guard. boundary_destroyed() counts
// then.
PGMQTT_FUNCTION(boundary_throw) {
    destroyed = 0;
    Counted one;
    std::string kind(pg::varlena_view(PG_GETARG_DATUM(0)));
    if (kind == "guarded") outer();
    if (kind == "raised")
        throw pg::Raised(pg::make_error(ERRCODE_FEATURE_NOT_SUPPORTED, "ours", "why", "what now"));
    if (kind == "memory") throw std::bad_alloc();
    if (kind == "runtime") throw std::runtime_error("runtime: 100%s");
    if (kind == "long") throw std::runtime_error(std::string(3000000, 'y'));
    throw 42;
}

PGMQTT_FUNCTION(boundary_destroyed) {
    PG_RETURN_INT32(destroyed);
}

// An exception out of a guarded body: the server's error stacks are as before, an ERROR still
// works.
PGMQTT_FUNCTION(boundary_exception_across_guard) {
    sigjmp_buf* exception_stack = PG_exception_stack;
    ErrorContextCallback* context_stack = error_context_stack;
    MemoryContext context = CurrentMemoryContext;
    int caught = 0;
    try {
        (void)pg::guard([] {
            MemoryContextSwitchTo(TopMemoryContext);
            throw std::runtime_error("through");
        });
    } catch (const std::runtime_error& error) {
        if (std::string(error.what()) == "through") ++caught;
    }
    bool intact = exception_stack == PG_exception_stack && context_stack == error_context_stack &&
                  context == CurrentMemoryContext;
    pg::Status status = pg::guard([] { raise_division_by_zero(); });
    if (!status.ok() && status.error().detail == "of nothing") ++caught;
    PG_RETURN_BOOL(intact && caught == 2 && exception_stack == PG_exception_stack);
}

// Inserts 1, then 2 in a subtransaction that ends as `how` says, then 3.
PGMQTT_FUNCTION(boundary_subtransaction) {
    std::string how(pg::varlena_view(PG_GETARG_DATUM(0)));
    pg::Statement insert("INSERT INTO public.boundary_rows VALUES ($1)", {INT4OID});
    auto put = [&insert](int value) {
        Datum values[] = {Int32GetDatum(value)};
        insert.execute(values);
    };
    std::string result = "released";
    ResourceOwner owner = CurrentResourceOwner;
    pg::value_or_throw(pg::guard([] { SPI_connect(); }));
    pg::value_or_throw(pg::guard([&put] { put(1); }));
    try {
        pg::Status status = pg::subtransaction([&put, &how] {
            put(2);
            if (how == "error") raise_division_by_zero();
            if (how == "constraint") put(-1);
            if (how == "exception") throw std::runtime_error("out");
        });
        if (!status) result = status.error().sqlstate_text();
    } catch (const std::runtime_error& error) {
        result = error.what();
    }
    if (owner != CurrentResourceOwner) result += ", resource owner lost";
    pg::value_or_throw(pg::guard([&put] {
        put(3);
        SPI_finish();
    }));
    return text_result(result);
}

// "role search_path" inside and after, and what an error inside leaves.
PGMQTT_FUNCTION(boundary_act_as) {
    Oid role = PG_GETARG_OID(0);
    bool fail = PG_GETARG_BOOL(1);
    const char* inside = nullptr;
    const char* after = nullptr;
    auto who = [] {
        return psprintf("%s %s", GetUserNameFromId(GetUserId(), false),
                        GetConfigOption("search_path", false, false));
    };
    pg::Status status = pg::subtransaction([&] {
        pg::ActAs saved = pg::act_as(role, "boundary, pg_temp");
        inside = who();
        if (fail) raise_division_by_zero();
        pg::act_as_before(saved);
    });
    pg::value_or_throw(pg::guard([&] { after = who(); }));
    return text_result(std::string(status.ok() ? "" : "failed; ") + inside + "; " + after);
}

PGMQTT_FUNCTION(boundary_timestamp) {
    return pg::timestamptz_datum(pg::wall_time(PG_GETARG_DATUM(0)));
}

PGMQTT_FUNCTION(boundary_unix_microseconds) {
    PG_RETURN_INT64(pg::wall_time(PG_GETARG_DATUM(0)).time_since_epoch().count());
}

PGMQTT_FUNCTION(boundary_from_utf8) {
    return pg::utf8_text_datum(pg::varlena_view(PG_GETARG_DATUM(0)));
}

PGMQTT_FUNCTION(boundary_to_utf8) {
    return pg::bytea_datum(pg::utf8_view(PG_GETARG_DATUM(0)));
}

// "configuration outbox changes"
PGMQTT_FUNCTION(boundary_events) {
    pg::Shared* shared = pg::shared();
    return text_result(std::to_string(shared->configuration) + " " +
                       std::to_string(shared->outbox) + " " + std::to_string(shared->changes));
}

PGMQTT_FUNCTION(boundary_mark) {
    pg::at_commit(static_cast<pg::Event>(PG_GETARG_INT32(0)));
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(boundary_watch) {
    ArrayType* array = PG_GETARG_ARRAYTYPE_P(0);
    int count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
    pg::set_watched_relations(reinterpret_cast<Oid*>(ARR_DATA_PTR(array)), count);
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(boundary_require_preload) {
    pg::require_preload();
    PG_RETURN_VOID();
}
