#include "sink/verdict.h"

#include <utils/errcodes.h>

namespace pgmqtt::sink {

bool is_transient(int sqlstate) {
    switch (sqlstate) {
        case ERRCODE_READ_ONLY_SQL_TRANSACTION:  // a standby, or someone set the default
        case ERRCODE_LOCK_NOT_AVAILABLE:
        case ERRCODE_OBJECT_IN_USE:
            return true;
        case ERRCODE_T_R_INTEGRITY_CONSTRAINT_VIOLATION:  // the message's, of the same class
            return false;
        default:
            break;
    }
    switch (ERRCODE_TO_CATEGORY(sqlstate)) {
        case ERRCODE_TRANSACTION_ROLLBACK:    // deadlock, serialization failure
        case ERRCODE_CONNECTION_EXCEPTION:    // a foreign server
        case ERRCODE_INSUFFICIENT_RESOURCES:  // disk full, out of memory, too many connections
        case ERRCODE_OPERATOR_INTERVENTION:   // shutdown, cancel, statement_timeout
        case ERRCODE_SYSTEM_ERROR:            // I/O
            return true;
        default:
            return false;
    }
}

bool may_be_the_statements(int sqlstate) {
    switch (ERRCODE_TO_CATEGORY(sqlstate)) {
        case ERRCODE_DATA_EXCEPTION:
        case ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION:
        case ERRCODE_CARDINALITY_VIOLATION:
        case ERRCODE_PLPGSQL_ERROR:
            return false;
        default:
            return true;
    }
}

mqtt::ReasonCode reason_of(int sqlstate) {
    return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_DATA_EXCEPTION
               ? mqtt::ReasonCode::kPayloadFormatInvalid
               : mqtt::ReasonCode::kImplementationSpecificError;
}

}  // namespace pgmqtt::sink
