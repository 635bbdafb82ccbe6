#include "sink/dead_letters.h"

extern "C" {
#include <catalog/pg_type_d.h>
}

#include "mqtt/codec.h"
#include "pg/datum.h"
#include "pg/properties.h"
#include "sink/msg_values.h"

namespace pgmqtt::sink {
namespace {

enum Column {
    kName,
    kTopic,
    kPayload,
    kProperties,
    kClientId,
    kSqlstate,
    kMessage,
    kAttempts,
    kQos,
    kRetain,
    kUsername,
    kReceivedAt,
    kMessageKey,
    kColumns,
};

// Empty is NULL, and so is what the server's encoding cannot say.
void set_text(base::ByteView utf8, Datum* value, char* null) {
    if (!utf8.empty() && text_value(utf8, value)) *null = ' ';
}

}  // namespace

DeadLetters::DeadLetters()
    : insert_(
          "INSERT INTO pgmqtt.dead_letter (source, name, topic, payload, properties, client_id, "
          "sqlstate, message, attempts, qos, retain, username, received_at, "
          "message_key) "
          "VALUES ('sink', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
          {TEXTOID, TEXTOID, BYTEAOID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT2OID,
           BOOLOID, TEXTOID, TIMESTAMPTZOID, TEXTOID}) {}

void DeadLetters::insert(const std::string& name, const Message& message, const pg::Error& error,
                         int attempts) {
    Datum values[kColumns] = {};
    char nulls[kColumns + 1] = "             ";
    nulls[kTopic] = nulls[kClientId] = nulls[kUsername] = nulls[kProperties] = nulls[kMessageKey] =
        'n';
    values[kName] = pg::text_datum(name);
    set_text(message.topic, &values[kTopic], &nulls[kTopic]);
    values[kPayload] = pg::bytea_datum(message.payload);
    if (properties_value(message, &values[kProperties])) nulls[kProperties] = ' ';
    set_text(message.client_id, &values[kClientId], &nulls[kClientId]);
    int sqlstate = error.sqlstate;
    values[kSqlstate] = pg::text_datum(unpack_sql_state(sqlstate));
    values[kMessage] = pg::text_datum(error.message);
    values[kAttempts] = Int32GetDatum(attempts);
    values[kQos] = Int16GetDatum(static_cast<int16>(message.qos));
    values[kRetain] = BoolGetDatum(message.retain);
    set_text(message.username, &values[kUsername], &nulls[kUsername]);
    values[kReceivedAt] = pg::timestamptz_datum(message.received_at);
    set_text(message.key, &values[kMessageKey], &nulls[kMessageKey]);
    insert_.execute(values, nulls);
}

}  // namespace pgmqtt::sink
