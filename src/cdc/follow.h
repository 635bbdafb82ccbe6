// A change of mappings is in force when its COMMIT returns (pg/follow.h), or says why it is not.
#pragma once

namespace pgmqtt::cdc {

// Of the functions that change mappings: the commit waits for the cdc worker and warns where it
// cannot publish at all. May raise.
void follow_at_commit();

}  // namespace pgmqtt::cdc
