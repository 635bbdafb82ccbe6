#include "cdc/dead_letter.h"

extern "C" {
#include <catalog/pg_type.h>
#include <mb/pg_wchar.h>
#include <utils/builtins.h>
#include <utils/pg_lsn.h>
}

#include <iterator>

#include "pg/datum.h"
#include "pg/transaction.h"

namespace pgmqtt::cdc {

namespace {

constexpr const char* kInsert =
    "INSERT INTO pgmqtt.dead_letter"
    " (source, name, topic, payload, lsn, sqlstate, message, qos, retain)"
    " VALUES ('mapping', $1, $2, $3, $4, $5, $6, $7, $8)";

// A bad topic is exactly what may not be valid text: what cannot be shown is left out.
bool is_server_text(const std::string& text) {
    return text.find('\0') == std::string::npos &&
           pg_verifymbstr(text.data(), static_cast<int>(text.size()), true);
}

}  // namespace

DeadLetters::DeadLetters()
    : insert_(kInsert,
              {TEXTOID, TEXTOID, BYTEAOID, PG_LSNOID, TEXTOID, TEXTOID, INT2OID, BOOLOID}) {}

void DeadLetters::insert(const DeadLetter& letter) {
    bool topic_shown = letter.topic && is_server_text(*letter.topic);
    char sqlstate[6];
    strlcpy(sqlstate, unpack_sql_state(letter.error.sqlstate), sizeof sqlstate);
    Datum values[] = {
        pg::text_datum(letter.name),
        topic_shown ? pg::text_datum(*letter.topic) : Datum{0},
        letter.payload ? pg::bytea_datum(*letter.payload) : Datum{0},
        LSNGetDatum(letter.lsn),
        CStringGetTextDatum(sqlstate),
        pg::text_datum(letter.error.message),
        Int16GetDatum(static_cast<int16>(letter.qos)),
        BoolGetDatum(letter.retain),
    };
    char nulls[] = {' ', topic_shown ? ' ' : 'n', letter.payload ? ' ' : 'n', ' ', ' ', ' ', ' ',
                    ' '};
    static_assert(std::size(values) == std::size(nulls));
    insert_.execute(values, nulls);
}

pg::Status DeadLetters::write(const std::vector<DeadLetter>& letters) {
    pg::TransactionOptions options;
    options.activity = "writing dead letters of mappings";
    return pg::transaction(options, [this, &letters] {
        for (size_t i = 0; i < letters.size(); ++i) insert(letters[i]);
    });
}

}  // namespace pgmqtt::cdc
