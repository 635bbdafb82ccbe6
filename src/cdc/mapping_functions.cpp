// pgmqtt.add_mapping() and its siblings. What is wrong is said here, at the creation, with the
// place in the expression; the bodies are plain, so that the server's own errors pass through with
// all they know.
#include "pg/backend.h"

extern "C" {
#include <access/xlog.h>
#include <catalog/pg_type.h>
#include <executor/spi.h>
#include <utils/array.h>
#include <utils/builtins.h>
}

#include "cdc/delete_check.h"
#include "cdc/follow.h"
#include "cdc/mapping.h"
#include "cdc/mapping_table.h"
#include "cdc/source.h"
#include "pg/guard.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

namespace {

constexpr int kMaxNameBytes = 255;

const char* text_argument(FunctionCallInfo fcinfo, int number) {
    return PG_ARGISNULL(number) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(number));
}

[[noreturn]] void refuse(const char* message, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s", message),
                    hint == nullptr ? 0 : errhint("%s", hint)));
    pg_unreachable();
}

void check_name(const char* name) {
    if (name == nullptr || *name == '\0') refuse("a mapping needs a name", nullptr);
    if (strlen(name) > kMaxNameBytes)
        refuse("the name of a mapping has at most 255 bytes", nullptr);
    if (!cdc::mapping_exists(name)) return;
    ereport(ERROR,
            (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("mapping \"%s\" already exists", name),
             errhint("To change it, drop it first: SELECT pgmqtt.drop_mapping(%s).",
                     quote_literal_cstr(name))));
}

unsigned check_operations(Datum array) {
    constexpr const char* kHint = "Operations are insert, update, delete and truncate.";
    Datum* words;
    bool* nulls;
    int count;
    deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &words, &nulls,
                      &count);
    if (count == 0) refuse("a mapping without operations would publish nothing", kHint);
    unsigned mask = 0;
    for (int i = 0; i < count; ++i) {
        const char* word = nulls[i] ? "NULL" : TextDatumGetCString(words[i]);
        unsigned bit = nulls[i] ? 0 : cdc::operation_bit(word);
        if (bit == 0) {
            ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                            errmsg("unknown operation \"%s\"", word), errhint("%s", kHint)));
        }
        mask |= bit;
    }
    return mask;
}

struct Definition {
    const char* name;
    Oid source;
    cdc::MappingExpressions::Texts texts;
    unsigned operations;
};

// Order of the arguments as in SQL.
Definition read_arguments(FunctionCallInfo fcinfo) {
    Definition definition = {};
    definition.name = text_argument(fcinfo, 0);
    check_name(definition.name);
    if (PG_ARGISNULL(1))
        refuse("source must not be NULL", "Name the table whose rows are published.");
    definition.source = PG_GETARG_OID(1);
    definition.texts.topic = text_argument(fcinfo, 2);
    if (definition.texts.topic == nullptr) {
        refuse("topic must not be NULL", "It is an SQL expression, such as 'orders/' || new.id.");
    }
    definition.texts.payload = text_argument(fcinfo, 3);
    definition.texts.filter = text_argument(fcinfo, 4);
    if (PG_ARGISNULL(5)) refuse("operations must not be NULL", nullptr);
    definition.operations = check_operations(PG_GETARG_DATUM(5));
    if (PG_ARGISNULL(6) || PG_GETARG_INT32(6) < 0 || PG_GETARG_INT32(6) > 2) {
        refuse("qos must be 0, 1 or 2", nullptr);
    }
    if (PG_ARGISNULL(7)) refuse("retain must not be NULL", nullptr);
    definition.texts.retain = PG_GETARG_BOOL(7);
    definition.texts.properties = text_argument(fcinfo, 8);
    const char* on_error = text_argument(fcinfo, 9);
    if (on_error == nullptr || (strcmp(on_error, "skip") != 0 && strcmp(on_error, "stall") != 0)) {
        refuse("on_error must be 'skip' or 'stall'",
               "skip: a row to pgmqtt.dead_letter, and on. stall: hold everything until it works.");
    }
    return definition;
}

// text[] of what they call.
Datum check_expressions(const Definition& definition) {
    cdc::MappingExpressions expressions = {};
    expressions.prepare(definition.source, definition.texts);
    if ((definition.operations & cdc::operation_bit("delete")) != 0) {
        cdc::check_delete({definition.name, definition.source, definition.texts.retain,
                           definition.texts.payload == nullptr},
                          expressions);
    }
    return cdc::noted_calls(expressions.scope.calls);
}

void store(FunctionCallInfo fcinfo, Datum calls) {
    cdc::NewMapping mapping = {};
    for (int i = cdc::kNewName; i <= cdc::kNewOnError; ++i) {
        mapping.values[i] = fcinfo->args[i].value;
        mapping.nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
    }
    mapping.values[cdc::kNewOwner] = ObjectIdGetDatum(GetUserId());
    mapping.nulls[cdc::kNewOwner] = ' ';
    const char* search_path = GetConfigOption("search_path", false, false);
    mapping.values[cdc::kNewSearchPath] = CStringGetTextDatum(search_path);
    mapping.nulls[cdc::kNewSearchPath] = ' ';
    mapping.values[cdc::kNewCalls] = calls;
    mapping.nulls[cdc::kNewCalls] = ' ';
    cdc::insert_mapping(mapping);
}

void no_such_mapping(const char* name) {
    ereport(ERROR,
            (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("mapping \"%s\" does not exist", name),
             errhint("SELECT name FROM pgmqtt.mappings.")));
}

}  // namespace

}  // namespace pgmqtt::cdc

PGMQTT_FUNCTION(pgmqtt_add_mapping) {
    using namespace pgmqtt;
    pg::require_preload();
    SPI_connect();
    cdc::Definition definition = cdc::read_arguments(fcinfo);
    cdc::check_source(definition.source, GetUserId());
    cdc::store(fcinfo, cdc::check_expressions(definition));
    SPI_finish();
    if (wal_level < WAL_LEVEL_LOGICAL) {
        ereport(
            WARNING,
            (errmsg("mapping \"%s\" will publish nothing: wal_level is too low", definition.name),
             errhint("Set wal_level = logical in postgresql.conf and restart the server.")));
    }
    cdc::follow_at_commit();
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_drop_mapping) {
    using namespace pgmqtt;
    const char* name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    SPI_connect();
    if (!cdc::delete_mapping(name)) cdc::no_such_mapping(name);
    SPI_finish();
    if (pg::shared() != nullptr) cdc::follow_at_commit();
    PG_RETURN_VOID();
}

PGMQTT_FUNCTION(pgmqtt_alter_mapping) {
    using namespace pgmqtt;
    const char* name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    SPI_connect();
    if (!cdc::enable_mapping(name, PG_GETARG_BOOL(1))) cdc::no_such_mapping(name);
    SPI_finish();
    if (pg::shared() != nullptr) cdc::follow_at_commit();
    PG_RETURN_VOID();
}
