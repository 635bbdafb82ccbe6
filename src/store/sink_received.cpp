#include "store/sink_received.h"

extern "C" {
#include <catalog/pg_type_d.h>
}

#include "pg/columns.h"
#include "pg/shared.h"

namespace pgmqtt::store {

SinkReceived::SinkReceived()
    : look_("SELECT 1 FROM pgmqtt.sink_received LIMIT 1", {}),
      remove_(
          "DELETE FROM pgmqtt.sink_received AS r USING ROWS FROM (pg_catalog.unnest($1), "
          "pg_catalog.unnest($2)) AS released (session_id, packet_id) "
          "WHERE r.session_id = released.session_id AND r.packet_id = released.packet_id",
          {INT8ARRAYOID, INT4ARRAYOID}) {}

// QoS 2 where there is no sink does not pay for this. A sink counts its rows before the broker
// hears of them, so before any PUBREL.
bool SinkReceived::may_have_rows() {
    if (pg::shared()->sink_rows > 0) return true;
    if (!looked_) left_over_ = look_.execute(nullptr, nullptr, true) > 0;
    looked_ = true;
    return left_over_;
}

bool SinkReceived::concerned(const broker::SessionNetEffect& net) {
    return !net.released.empty() && may_have_rows();
}

void SinkReceived::forget_released(const broker::SessionNetEffect& net) {
    if (!concerned(net)) return;
    pg::Columns released(net.released.size(), {INT8OID, INT4OID});
    for (const auto& packet : net.released)
        released.add({Int64GetDatum(static_cast<int64>(packet.session_id)),
                      Int32GetDatum(packet.packet_id)});
    remove_.execute(released.arrays());
}

}  // namespace pgmqtt::store
