// Log-in with the database's own roles.
#pragma once

#include "broker/broker.h"
#include "broker/turn.h"

namespace pgmqtt::auth {

// Decides a CONNECT: anonymous by pgmqtt.allow_anonymous, else user name and password against the
// role's SCRAM-SHA-256 verifier, LOGIN and VALID UNTIL. Costs some milliseconds (the verifier's
// iterations), so the loop takes a few per turn. Opens a transaction.
broker::AuthVerdict authenticate(const broker::AuthRequest& request);

}  // namespace pgmqtt::auth
