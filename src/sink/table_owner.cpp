#include "sink/table_owner.h"

extern "C" {
#include <access/htup_details.h>
#include <catalog/namespace.h>
#include <catalog/pg_class.h>
#include <utils/lsyscache.h>
#include <utils/syscache.h>
}

namespace pgmqtt::sink {

pg::ActAs act_as_table_owner() {
    Oid table = get_relname_relid("sink", get_namespace_oid("pgmqtt", false));
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
    if (!HeapTupleIsValid(tuple))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("relation \"pgmqtt.sink\" does not exist")));
    Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return pg::act_as(owner, "pg_catalog, pg_temp");
}

}  // namespace pgmqtt::sink
