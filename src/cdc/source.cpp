#include "cdc/source.h"

extern "C" {
#include <access/htup_details.h>
#include <access/relation.h>
#include <access/sysattr.h>
#include <catalog/catalog.h>
#include <catalog/namespace.h>
#include <catalog/pg_class.h>
#include <catalog/pg_inherits.h>
#include <utils/acl.h>
#include <utils/builtins.h>
#include <utils/lsyscache.h>
#include <utils/rel.h>
#include <utils/relcache.h>
#include <utils/rls.h>
#include <utils/syscache.h>
}

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

const char* kind_name(char kind) {
    switch (kind) {
        case RELKIND_VIEW:
            return "a view";
        case RELKIND_MATVIEW:
            return "a materialized view";
        case RELKIND_FOREIGN_TABLE:
            return "a foreign table";
        case RELKIND_SEQUENCE:
            return "a sequence";
        case RELKIND_INDEX:
        case RELKIND_PARTITIONED_INDEX:
            return "an index";
        case RELKIND_COMPOSITE_TYPE:
            return "a composite type";
        default:
            return "not a table";
    }
}

void check_kind(Form_pg_class relation, const char* name) {
    if (relation->relkind != RELKIND_RELATION && relation->relkind != RELKIND_PARTITIONED_TABLE) {
        ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                        errmsg("cannot map \"%s\": it is %s", name, kind_name(relation->relkind)),
                        errdetail("Only the changes of tables are in the WAL."),
                        errhint("Map the table itself.")));
    }
    if (relation->relpersistence == RELPERSISTENCE_PERMANENT) return;
    ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                    errmsg("cannot map \"%s\": it is %s", name,
                           relation->relpersistence == RELPERSISTENCE_TEMP ? "a temporary table"
                                                                           : "an unlogged table"),
                    errdetail("Its changes are not in the WAL."),
                    relation->relpersistence == RELPERSISTENCE_TEMP
                        ? 0
                        : errhint("ALTER TABLE %s SET LOGGED.", quote_identifier(name))));
}

void check_namespace(Oid id, Oid schema, const char* name) {
    if (IsCatalogRelationOid(id) || IsCatalogNamespace(schema) || IsToastNamespace(schema)) {
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("cannot map \"%s\": it is a system catalog", name)));
    }
    if (schema == get_namespace_oid("pgmqtt", true)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("cannot map \"%s\": it belongs to pgmqtt itself", name),
                        errdetail("Publishing what the broker writes would publish for ever.")));
    }
}

// Nothing keeps a role that owns mappings from being dropped.
void check_role(Oid role) {
    if (SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role))) return;
    ereport(ERROR,
            (errcode(ERRCODE_UNDEFINED_OBJECT),
             errmsg("the mapping's owner (role oid %u) does not exist any more", role),
             errhint("Drop the mapping, and add it again as a role that may read its table.")));
}

}  // namespace

void check_source(Oid relation, Oid role) {
    check_role(role);
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
    if (!HeapTupleIsValid(tuple)) {
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("the source table (oid %u) does not exist any more", relation),
                        errhint("Drop the mapping; if the table was created again, add it anew.")));
    }
    auto* form = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple));
    const char* name = pstrdup(NameStr(form->relname));
    check_namespace(relation, form->relnamespace, name);
    check_kind(form, name);
    ReleaseSysCache(tuple);
    if (pg_class_aclcheck(relation, role, ACL_SELECT) != ACLCHECK_OK) {
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                 errmsg("permission denied for table %s", name),
                 errdetail("A mapping publishes what its owner may read: role \"%s\" needs SELECT.",
                           GetUserNameFromId(role, false)),
                 errhint("GRANT SELECT ON %s TO %s.", quote_identifier(name),
                         quote_identifier(GetUserNameFromId(role, false)))));
    }
    if (check_enable_rls(relation, role, true) == RLS_ENABLED) {
        ereport(
            ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
             errmsg("row-level security of table %s hides rows from role \"%s\"", name,
                    GetUserNameFromId(role, false)),
             errdetail("A mapping publishes every changed row."),
             errhint("Let the table's owner or a role with BYPASSRLS own the mapping, and select "
                     "rows with a filter.")));
    }
}

void check_sees_all(Oid relation, const char* hint) {
    if (check_enable_rls(relation, InvalidOid, false) != RLS_ENABLED) return;
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("row-level security of table %s hides rows from role \"%s\"",
                           get_rel_name(relation), GetUserNameFromId(GetUserId(), false)),
                    errhint("%s", hint)));
}

OldRow old_row_of(Oid relation) {
    Relation opened = relation_open(relation, AccessShareLock);
    OldRow result = OldRow::kNothing;
    if (opened->rd_rel->relreplident == REPLICA_IDENTITY_FULL) {
        result = OldRow::kWhole;
    } else if (OidIsValid(RelationGetReplicaIndex(opened))) {
        result = OldRow::kKey;
    }
    relation_close(opened, AccessShareLock);
    return result;
}

bool old_row_has(Oid relation, const char* column) {
    AttrNumber number = get_attnum(relation, column);
    Relation opened = relation_open(relation, AccessShareLock);
    bool has = opened->rd_rel->relreplident == REPLICA_IDENTITY_FULL;
    if (!has) {
        Bitmapset* key = RelationGetIdentityKeyBitmap(opened);
        has = bms_is_member(number - FirstLowInvalidHeapAttributeNumber, key);
    }
    relation_close(opened, AccessShareLock);
    return has;
}

Oids with_partitions(Oid relation) {
    if (get_rel_relkind(relation) != RELKIND_PARTITIONED_TABLE) {
        auto* one = static_cast<Oid*>(palloc(sizeof(Oid)));
        one[0] = relation;
        return {one, 1};
    }
    // No lock: only to know whose commits are worth a look.
    List* all = find_all_inheritors(relation, NoLock, nullptr);
    Oids oids = {static_cast<Oid*>(palloc(sizeof(Oid) * static_cast<size_t>(list_length(all)))), 0};
    ListCell* cell;
    foreach (cell, all) oids.items[oids.count++] = lfirst_oid(cell);
    return oids;
}

}  // namespace pgmqtt::cdc
