// pgmqtt.publish(): a row of pgmqtt.outbox, so it is as transactional, durable and replicated as
// any row, at any wal_level. The store worker hands committed rows to the broker.
#include "pg/backend.h"

extern "C" {
#include <access/xact.h>
#include <catalog/namespace.h>
#include <executor/spi.h>
#include <utils/builtins.h>
#include <utils/jsonb.h>
#include <utils/lsyscache.h>
#include <utils/rel.h>
#include <utils/snapmgr.h>
#include <utils/syscache.h>
#include <utils/timestamp.h>
}

#include <string>

#include "base/time.h"
#include "mqtt/codec.h"
#include "mqtt/topic.h"
#include "pg/append_table.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/hops.h"
#include "pg/properties.h"
#include "pg/settings.h"
#include "pg/shared.h"
#include "pg/table_owner.h"

namespace pgmqtt {
namespace {

// --- order of commits
//
// Rows get their ids when publish() is called; the order between transactions is that in which they
// begin to commit, taken from a sequence just before. A transaction that starts after another's
// COMMIT returned, or that saw its effects, always comes later. In outbox_commit one row per
// transaction says so; a PREPAREd transaction takes its place at PREPARE.

bool published_in_transaction = false;
bool callback_registered = false;

// Writes as the owner of the outbox: callers hold EXECUTE on publish(), nothing on the table. An
// ERROR leaves through the (sub)transaction's abort, which restores the role.
uint64 execute_as_owner(SPIPlanPtr& plan, const char* sql, int count, Oid* types, Datum* values) {
    Oid role;
    int context;
    GetUserIdAndSecContext(&role, &context);
    SetUserIdAndSecContext(pg::table_owner("outbox"), context | SECURITY_LOCAL_USERID_CHANGE);
    if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "could not connect to SPI");
    if (plan == nullptr) {
        SPIPlanPtr prepared = SPI_prepare(sql, count, types);
        if (prepared == nullptr)
            elog(ERROR, "could not prepare: %s", SPI_result_code_string(SPI_result));
        SPI_keepplan(prepared);
        plan = prepared;
    }
    int result = SPI_execute_plan(plan, values, nullptr, false, 0);
    if (result != SPI_OK_INSERT)
        elog(ERROR, "could not insert: %s", SPI_result_code_string(result));
    uint64 processed = SPI_processed;
    SPI_finish();
    SetUserIdAndSecContext(role, context);
    return processed;
}

SPIPlanPtr insert_plan = nullptr;
SPIPlanPtr commit_plan = nullptr;

void take_commit_order() {
    // The transaction may have dropped the extension, and with it what it published.
    if (!OidIsValid(pg::table_id("outbox_commit", true))) return;
    PushActiveSnapshot(GetTransactionSnapshot());
    execute_as_owner(commit_plan,
                     "INSERT INTO pgmqtt.outbox_commit (xid) "
                     "VALUES (pg_catalog.pg_current_xact_id())",
                     0, nullptr, nullptr);
    PopActiveSnapshot();
}

void on_transaction_event(XactEvent event, void*) {
    switch (event) {
        case XACT_EVENT_PRE_COMMIT:
        case XACT_EVENT_PRE_PREPARE:
            if (published_in_transaction) take_commit_order();
            break;
        case XACT_EVENT_COMMIT:
        case XACT_EVENT_ABORT:
        case XACT_EVENT_PREPARE:
            published_in_transaction = false;
            break;
        default:
            break;
    }
}

// --- the call

struct Arguments {
    std::string topic;       // UTF-8
    base::ByteView payload;  // in the caller's memory context
    int qos = 0;
    bool retain = false;
    std::string properties;  // encoded
    Datum expires_at = 0;
};

[[noreturn]] void refuse(int sqlstate, std::string message, std::string detail = {},
                         std::string hint = {}) {
    throw pg::Raised(
        pg::make_error(sqlstate, std::move(message), std::move(detail), std::move(hint)));
}

void check_topic(const std::string& topic) {
    if (topic.empty()) refuse(ERRCODE_INVALID_PARAMETER_VALUE, "topic must not be empty");
    if (topic.size() > mqtt::kMaxTopicBytes)
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, "topic is too long",
               "It has " + std::to_string(topic.size()) + " bytes; MQTT allows 65535.");
    if (topic.find_first_of("+#") != std::string::npos)
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, "topic \"" + topic + "\" contains a wildcard",
               "A message is published to one topic; + and # are for subscriptions.");
    if (mqtt::begins_with_dollar(topic))
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, "topic \"" + topic + "\" begins with $",
               "Topics that begin with $ belong to the broker.");
    if (!mqtt::is_valid_topic_name(topic))
        refuse(ERRCODE_INVALID_PARAMETER_VALUE, "topic is not a valid MQTT topic name");
}

// The largest PUBLISH that carries this: 5 bytes of fixed header, topic, identifier, properties.
void check_size(const Arguments& arguments) {
    size_t size = 5 + 2 + arguments.topic.size() + 2 + 4 + arguments.properties.size() +
                  arguments.payload.size();
    if (size > static_cast<size_t>(pg::settings.max_packet_size))
        refuse(ERRCODE_PROGRAM_LIMIT_EXCEEDED, "message is too large to publish",
               "The packet would have " + std::to_string(size) +
                   " bytes; pgmqtt.max_packet_size is " +
                   std::to_string(pg::settings.max_packet_size) + ".",
               "Raise pgmqtt.max_packet_size and reload.");
}

// Infinity without an expiry interval.
void set_expiry(Arguments& arguments) {
    mqtt::Properties properties;
    auto decoded = mqtt::decode_message_properties(arguments.properties, properties);
    TimestampTz expires;
    TIMESTAMP_NOEND(expires);
    if (decoded && properties.message_expiry_interval)
        expires = GetCurrentTimestamp() +
                  static_cast<TimestampTz>(*properties.message_expiry_interval) * USECS_PER_SEC;
    arguments.expires_at = TimestampTzGetDatum(expires);
}

Arguments read_arguments(FunctionCallInfo fcinfo, base::ByteView payload) {
    Arguments arguments;
    if (PG_ARGISNULL(0)) refuse(ERRCODE_NULL_VALUE_NOT_ALLOWED, "topic must not be NULL");
    base::ByteView topic;
    pg::value_or_throw(pg::guard([&] { topic = pg::utf8_view(PG_GETARG_DATUM(0)); }));
    arguments.topic = topic;
    check_topic(arguments.topic);
    arguments.payload = payload;
    arguments.qos = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT32(2);
    if (arguments.qos < 0 || arguments.qos > 2)
        refuse(ERRCODE_INVALID_PARAMETER_VALUE,
               "qos must be 0, 1 or 2, not " + std::to_string(arguments.qos));
    arguments.retain = !PG_ARGISNULL(3) && PG_GETARG_BOOL(3);
    if (!PG_ARGISNULL(4)) arguments.properties = pg::properties_from_jsonb(PG_GETARG_DATUM(4));
    if (pg::current_hops() > 0) pg::set_hops(arguments.properties, pg::current_hops());
    check_size(arguments);
    set_expiry(arguments);
    return arguments;
}

void insert(const Arguments& arguments) {
    pg::value_or_throw(pg::guard([&] {
        PreventCommandIfReadOnly("pgmqtt.publish()");
        PreventCommandIfParallelMode("pgmqtt.publish()");
        if (!callback_registered) {
            RegisterXactCallback(on_transaction_event, nullptr);
            callback_registered = true;
        }
        Oid types[] = {BYTEAOID, BYTEAOID, INT2OID, BOOLOID, BYTEAOID, TIMESTAMPTZOID};
        Datum values[] = {pg::bytea_datum(arguments.topic),
                          pg::bytea_datum(arguments.payload),
                          Int16GetDatum(static_cast<int16>(arguments.qos)),
                          BoolGetDatum(arguments.retain),
                          pg::bytea_datum(arguments.properties),
                          arguments.expires_at};
        execute_as_owner(insert_plan,
                         "INSERT INTO pgmqtt.outbox "
                         "(topic, payload, qos, retain, properties, expires_at) "
                         "VALUES ($1, $2, $3, $4, $5, $6)",
                         lengthof(types), types, values);
        published_in_transaction = true;
        pg::at_commit(pg::Event::kOutbox);
    }));
}

template <class ReadPayload>
Datum publish(FunctionCallInfo fcinfo, ReadPayload read_payload) {
    pg::value_or_throw(pg::guard([] { pg::require_preload(); }));
    base::ByteView payload;
    if (!PG_ARGISNULL(1))
        pg::value_or_throw(pg::guard([&] { payload = read_payload(PG_GETARG_DATUM(1)); }));
    insert(read_arguments(fcinfo, payload));
    PG_RETURN_VOID();
}

base::ByteView jsonb_text(Datum jsonb) {
    Jsonb* document = DatumGetJsonbP(jsonb);
    char* text = JsonbToCString(nullptr, &document->root, VARSIZE(document));
    return pg::utf8_view(CStringGetTextDatum(text));
}

}  // namespace
}  // namespace pgmqtt

PGMQTT_FUNCTION(pgmqtt_publish_bytea) {
    return pgmqtt::publish(fcinfo, [](Datum payload) { return pgmqtt::pg::varlena_view(payload); });
}

PGMQTT_FUNCTION(pgmqtt_publish_text) {
    return pgmqtt::publish(fcinfo, [](Datum payload) { return pgmqtt::pg::utf8_view(payload); });
}

PGMQTT_FUNCTION(pgmqtt_publish_jsonb) {
    return pgmqtt::publish(fcinfo, [](Datum payload) { return pgmqtt::jsonb_text(payload); });
}
