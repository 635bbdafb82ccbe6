#include "cdc/change.h"

namespace pgmqtt::cdc {

const char* op_name(Op op) {
    switch (op) {
        case Op::kInsert:
            return "INSERT";
        case Op::kUpdate:
            return "UPDATE";
        case Op::kDelete:
            return "DELETE";
        case Op::kTruncate:
            return "TRUNCATE";
        case Op::kSnapshot:
            return "SNAPSHOT";
    }
    return "";
}

}  // namespace pgmqtt::cdc
