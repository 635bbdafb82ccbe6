// What the current role may do.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <catalog/pg_proc.h>
#include <utils/acl.h>
#include <utils/lsyscache.h>
}

namespace pgmqtt::pg {

// Raises the server's own error when it may not call `function`, which `type` (OBJECT_FUNCTION,
// OBJECT_PROCEDURE) names in it.
inline void require_execute(Oid function, ObjectType type) {
#if PG_VERSION_NUM >= 160000
    AclResult result = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
    AclResult result = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif
    if (result != ACLCHECK_OK) aclcheck_error(result, type, get_func_name(function));
}

}  // namespace pgmqtt::pg
