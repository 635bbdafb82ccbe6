#include "pg/extension.h"

extern "C" {
#include <access/genam.h>
#include <access/htup_details.h>
#include <access/table.h>
#include <catalog/pg_extension.h>
#include <catalog/pg_namespace.h>
#include <catalog/pg_proc.h>
#include <commands/extension.h>
#include <utils/builtins.h>
#include <utils/fmgroids.h>
#include <utils/rel.h>
}

#include <cstring>

#include "pg/guard.h"
#include "pg/log.h"
#include "pg/shared.h"
#include "pg/transaction.h"

namespace pgmqtt::pg {
namespace {

// The extension as the catalogs have it.
struct Found {
    Oid oid = InvalidOid;
    char version[64] = "";
    char fingerprint[64] = "";

    bool is_foreign() const {
        return OidIsValid(oid) && std::strcmp(fingerprint, PGMQTT_SCHEMA) != 0;
    }
    bool is_served() const;
};

Oid served = InvalidOid;
Found latest;  // of serve_extension()
bool exists = false;
bool looked = false;  // the last look came to an end
uint64_t seen_configuration = 0;

bool Found::is_served() const {
    return OidIsValid(oid) && oid == served && !is_foreign();
}

// --- looking for it; may raise

void read_version(Found& found) {
    Relation extensions = table_open(ExtensionRelationId, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(found.oid));
    SysScanDesc scan = systable_beginscan(extensions, ExtensionOidIndexId, true, nullptr, 1, &key);
    HeapTuple tuple = systable_getnext(scan);
    if (HeapTupleIsValid(tuple)) {
        bool is_null;
        Datum version = heap_getattr(tuple, Anum_pg_extension_extversion,
                                     RelationGetDescr(extensions), &is_null);
        if (!is_null) strlcpy(found.version, TextDatumGetCString(version), sizeof(found.version));
    }
    systable_endscan(scan);
    table_close(extensions, AccessShareLock);
}

// SELECT 'fingerprint' is the body.
void copy_fingerprint(Found& found, const char* body) {
    const char* begin = std::strchr(body, '\'');
    if (begin == nullptr) return;
    strlcpy(found.fingerprint, begin + 1, sizeof(found.fingerprint));
    if (char* end = std::strchr(found.fingerprint, '\'')) *end = '\0';
}

bool is_our_schema(Oid schema) {
    Relation schemas = table_open(NamespaceRelationId, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_namespace_oid, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(schema));
    SysScanDesc scan = systable_beginscan(schemas, NamespaceOidIndexId, true, nullptr, 1, &key);
    HeapTuple tuple = systable_getnext(scan);
    bool ours = HeapTupleIsValid(tuple) &&
                std::strcmp(NameStr(reinterpret_cast<Form_pg_namespace>(GETSTRUCT(tuple))->nspname),
                            "pgmqtt") == 0;
    systable_endscan(scan);
    table_close(schemas, AccessShareLock);
    return ours;
}

// Out of the body of a function, which is not called: it may be anything, or missing. Not out of
// the caches: we are woken by a commit before it sends its invalidations.
void read_fingerprint(Found& found) {
    Relation functions = table_open(ProcedureRelationId, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_proc_proname, BTEqualStrategyNumber, F_NAMEEQ,
                CStringGetDatum("schema_fingerprint"));
    SysScanDesc scan =
        systable_beginscan(functions, ProcedureNameArgsNspIndexId, true, nullptr, 1, &key);
    while (HeapTuple tuple = systable_getnext(scan)) {
        auto function = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
        if (function->pronargs != 0 || !is_our_schema(function->pronamespace)) continue;
        bool is_null;
        Datum body =
            heap_getattr(tuple, Anum_pg_proc_prosrc, RelationGetDescr(functions), &is_null);
        if (!is_null) copy_fingerprint(found, TextDatumGetCString(body));
    }
    systable_endscan(scan);
    table_close(functions, AccessShareLock);
}

Found find_extension() {
    Found found;
    found.oid = get_extension_oid("pgmqtt", true);
    if (!OidIsValid(found.oid)) return found;
    read_version(found);
    read_fingerprint(found);
    return found;
}

// False: nobody knows.
bool look_up(Found& found) {
    // Read first: what changes after the look is then seen as a change.
    uint64_t configuration = shared()->configuration;
    looked = false;
    Status status = transaction({.read_only = true}, [&found] { found = find_extension(); });
    if (!status) {
        log(WARNING, "pgmqtt could not look for its extension", status.error());
        return false;
    }
    seen_configuration = configuration;
    looked = true;
    shared()->foreign_extension = found.is_foreign();
    // Nobody follows what is changed in a foreign one, either.
    if (!OidIsValid(found.oid) || found.is_foreign()) shared()->without_extension = configuration;
    return true;
}

// --- what is said of a foreign one

constexpr const char* kForeign =
    "extension pgmqtt was created by another build than the library that runs";

struct Words {
    char detail[320];
    char hint[320];
};

Words words_about(const Found& found) {
    Words words;
    snprintf(words.detail, sizeof(words.detail),
             "The library wants version %s with schema %s; the database has version %s with %s%s.",
             PGMQTT_VERSION, PGMQTT_SCHEMA, found.version,
             found.fingerprint[0] != '\0' ? "schema " : "a schema of unknown origin",
             found.fingerprint);
    bool same = std::strcmp(found.version, PGMQTT_VERSION) == 0;
    snprintf(words.hint, sizeof(words.hint),
             "If a newer library was installed since the server started, restart the server. "
             "Otherwise run %sDROP EXTENSION pgmqtt CASCADE; CREATE EXTENSION pgmqtt;",
             same ? "" : "ALTER EXTENSION pgmqtt UPDATE; or, where there is no update, ");
    return words;
}

}  // namespace

bool serve_extension() {
    Found found;
    if (!look_up(found)) return false;
    latest = found;
    served = found.is_foreign() ? InvalidOid : found.oid;
    exists = found.is_served();
    return exists;
}

bool extension_may_have_changed() {
    return !looked || shared()->configuration != seen_configuration;
}

Oid found_extension() {
    return latest.oid;
}

bool found_is_foreign() {
    return latest.is_foreign();
}

void report_foreign_extension() {
    Words words = words_about(latest);
    log(WARNING, kForeign, words.detail, words.hint);
}

void require_own_schema() {
    if (!shared()->foreign_extension.load(std::memory_order_relaxed)) return;
    Found found = find_extension();
    if (!found.is_foreign()) return;
    Words words = words_about(found);
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("%s", kForeign),
                    errdetail("%s", words.detail), errhint("%s", words.hint)));
}

void require_own_script() {
    Found found;
    read_fingerprint(found);
    if (std::strcmp(found.fingerprint, PGMQTT_SCHEMA) == 0) return;
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("the script of extension pgmqtt is of another build than the library that runs"),
         errdetail("The library wants schema %s; the script makes schema %s.", PGMQTT_SCHEMA,
                   found.fingerprint),
         errhint("Install both with make install, and restart the server.")));
}

// A commit counts what it changed before it releases its locks: who has got one of them sees it.
bool extension_exists() {
    if (shared()->configuration.load(std::memory_order_relaxed) == seen_configuration)
        return exists;
    Found found;
    if (look_up(found)) exists = found.is_served();
    return exists;
}

void require_extension() {
    if (exists && shared()->configuration == seen_configuration) return;
    if (find_extension().is_served()) return;
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("extension pgmqtt was dropped")));
}

}  // namespace pgmqtt::pg
