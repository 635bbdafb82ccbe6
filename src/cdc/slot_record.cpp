#include "cdc/slot_record.h"

extern "C" {
#include <catalog/pg_type.h>
#include <executor/spi.h>
#include <utils/pg_lsn.h>
}

#include "pg/transaction.h"

namespace pgmqtt::cdc {

namespace {

// Only of mappings for which the slot has held changes: one that is new, or was switched on, when
// it had gone already misses none. Positions of another cluster, whose dump was restored here, mean
// nothing.
constexpr const char* kNoteGaps =
    "INSERT INTO pgmqtt.gap AS g (mapping, after_lsn)"
    " SELECT m.id, CASE WHEN s.system_identifier ="
    " (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c) THEN s.confirmed_lsn END"
    " FROM pgmqtt.cdc_slot s, pgmqtt.mapping m"
    " WHERE m.enabled AND (m.had_slot OR m.enabled_at < s.at)"
    " ON CONFLICT (mapping) DO UPDATE SET before_lsn = NULL WHERE g.before_lsn IS NOT NULL";

constexpr const char* kRemember =
    "INSERT INTO pgmqtt.cdc_slot (confirmed_lsn, system_identifier)"
    " SELECT $1, c.system_identifier FROM pg_catalog.pg_control_system() c"
    " ON CONFLICT (one) DO UPDATE SET confirmed_lsn = excluded.confirmed_lsn,"
    " system_identifier = excluded.system_identifier, at = excluded.at";

constexpr const char* kEndGaps = "UPDATE pgmqtt.gap SET before_lsn = $1 WHERE before_lsn IS NULL";

// What a crash takes back here is noted again at the next start, when there is a slot or none.
constexpr pg::TransactionOptions kNoHurry = {.wait = pg::CommitWait::kNothing};

// Inside a transaction: may raise.
uint64 run(const char* sql, XLogRecPtr lsn) {
    Oid types[] = {PG_LSNOID};
    Datum values[] = {LSNGetDatum(lsn)};
    int count = XLogRecPtrIsInvalid(lsn) ? 0 : 1;
    int result = SPI_execute_with_args(sql, count, types, values, nullptr, false, 0);
    if (result < 0) elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(result));
    return SPI_processed;
}

}  // namespace

pg::Result<bool> note_missing_slot() {
    uint64 noted = 0;
    pg::Status status =
        pg::transaction({}, [&noted] { noted = run(kNoteGaps, InvalidXLogRecPtr); });
    if (!status.ok()) return base::fail(std::move(status.error()));
    return noted > 0;
}

pg::Status remember_slot(XLogRecPtr confirmed) {
    return pg::transaction(kNoHurry, [confirmed] {
        run(kRemember, confirmed);
        run(kEndGaps, confirmed);
    });
}

pg::Status forget_slot() {
    return pg::transaction(kNoHurry, [] { run("DELETE FROM pgmqtt.cdc_slot", InvalidXLogRecPtr); });
}

}  // namespace pgmqtt::cdc
