// Session state back to the broker at its start.
#pragma once

#include "pg/guard.h"

#include <functional>

#include "broker/store_record.h"

namespace pgmqtt::store {

// Everything that is stored, as records: kSession, kSubscribe, then of each log kDelivery (by
// session and sequence) and kReceived. No message is read. The views in a record are valid during
// the call. Deliveries and identifiers may be of sessions that are not
// stored.
pg::Status load_sessions(const std::function<void(const broker::StoreRecord&)>& take);

}  // namespace pgmqtt::store
