// Session state back to the broker at its start.
#pragma once

#include "pg/guard.h"

#include <functional>

#include "broker/store_record.h"

namespace pgmqtt::store {

// Everything that is stored, as records: kSession, kSubscribe, kMessage, kDelivery (by session and
// sequence), kReceived. The views in a record are valid during the call. Rows that belong to
// nothing are removed first.
pg::Status load_sessions(const std::function<void(const broker::StoreRecord&)>& take);

}  // namespace pgmqtt::store
