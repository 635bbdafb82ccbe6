// A change of mappings is in force when its COMMIT returns: the committing backend waits for the
// cdc worker.
#pragma once

namespace pgmqtt::cdc {

// Makes the commit of the current transaction wait until the worker has followed the configuration,
// or cannot. May raise.
void follow_at_commit();

}  // namespace pgmqtt::cdc
