// Writes pgmqtt.mapping, as the owner of that table: who may call the functions holds no right on
// it. Everything here may raise and belongs where no destructor is alive; SPI is connected.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::cdc {

// Arguments of pgmqtt.add_mapping in their order, and what it adds.
struct NewMapping {
    Datum values[14];
    char nulls[15];  // 'n' or ' '
};
enum NewMappingColumn : int {
    kNewName,
    kNewSource,
    kNewTopic,
    kNewPayload,
    kNewFilter,
    kNewOperations,
    kNewQos,
    kNewRetain,
    kNewProperties,
    kNewOnError,
    kNewOwner,
    kNewSearchPath,
    kNewCalls,
    kNewHadSlot  // by insert_mapping()
};
void insert_mapping(NewMapping& mapping);

bool mapping_exists(const char* name);
// False: there is no such mapping.
bool delete_mapping(const char* name);
bool enable_mapping(const char* name, bool enabled);
// Its table's state is published anew, or nobody wants it.
void close_gap(const char* name);

}  // namespace pgmqtt::cdc
