// The server's name of a relation's file, which versions 14 and 15 call otherwise than 16 to 18.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <utils/rel.h>
}

namespace pgmqtt::pg {

#if PG_VERSION_NUM >= 160000

using FileNode = RelFileLocator;

inline const FileNode& file_node(Relation relation) {
    return relation->rd_locator;
}
inline Oid database(const FileNode& node) {
    return node.dbOid;
}
inline Oid number(const FileNode& node) {
    return node.relNumber;
}

#else

using FileNode = RelFileNode;

inline const FileNode& file_node(Relation relation) {
    return relation->rd_node;
}
inline Oid database(const FileNode& node) {
    return node.dbNode;
}
inline Oid number(const FileNode& node) {
    return node.relNode;
}

#endif

}  // namespace pgmqtt::pg
