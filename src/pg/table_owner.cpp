#include "pg/table_owner.h"

extern "C" {
#include <access/htup_details.h>
#include <catalog/pg_class.h>
#include <utils/syscache.h>
}

#include "pg/append_table.h"

namespace pgmqtt::pg {

Oid table_owner(const char* table) {
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table_id(table)));
    if (!HeapTupleIsValid(tuple))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("relation \"pgmqtt.%s\" does not exist", table)));
    Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

ActAs act_as_table_owner(const char* table) {
    return act_as(table_owner(table), "pg_catalog, pg_temp");
}

}  // namespace pgmqtt::pg
