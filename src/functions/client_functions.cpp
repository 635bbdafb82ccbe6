// pgmqtt.clients: who is connected, asked of the broker at this moment.
#include "pg/backend.h"

extern "C" {
#include <funcapi.h>
#include <utils/builtins.h>
#include <utils/fmgrprotos.h>
}

#include <algorithm>
#include <cstring>

#include "broker/client_record.h"
#include "pg/datum.h"
#include "pg/guard.h"
#include "pg/inquiry.h"

namespace pgmqtt {
namespace {

using broker::ClientRecord;

const char* transport_name(broker::TransportKind transport) {
    switch (transport) {
        case broker::TransportKind::kTls:
            return "tls";
        case broker::TransportKind::kWs:
            return "ws";
        case broker::TransportKind::kWss:
            return "wss";
        case broker::TransportKind::kTcp:
            break;
    }
    return "tcp";
}

const char* protocol_name(mqtt::Version version) {
    switch (version) {
        case mqtt::Version::k31:
            return "3.1";
        case mqtt::Version::k311:
            return "3.1.1";
        case mqtt::Version::k5:
            break;
    }
    return "5.0";
}

// inet knows no zone: "fe80::1%eth0" is shown without.
Datum inet_datum(base::ByteView address) {
    char text[64];
    size_t size = std::min({address.find('%'), address.size(), sizeof text - 1});
    std::memcpy(text, address.data(), size);
    text[size] = '\0';
    return DirectFunctionCall1(inet_in, CStringGetDatum(text));
}

Datum count_datum(uint64_t count) {
    return Int64GetDatum(static_cast<int64>(count));
}

// Within a guard; may raise.
void put_client(const ClientRecord& client, ReturnSetInfo* result) {
    Datum values[] = {pg::utf8_text_datum(client.client_id),
                      client.username.empty() ? Datum{0} : pg::utf8_text_datum(client.username),
                      inet_datum(client.address),
                      Int32GetDatum(client.port),
                      CStringGetTextDatum(transport_name(client.transport)),
                      CStringGetTextDatum(protocol_name(client.version)),
                      pg::timestamptz_datum(client.connected_at),
                      pg::timestamptz_datum(client.last_packet_at),
                      Int32GetDatum(client.keep_alive),
                      BoolGetDatum(client.clean_start),
                      count_datum(client.session_expiry),
                      count_datum(client.subscriptions),
                      count_datum(client.inflight_out),
                      count_datum(client.inflight_in),
                      count_datum(client.queued),
                      count_datum(client.queued_bytes),
                      count_datum(client.messages_in),
                      count_datum(client.messages_out),
                      count_datum(client.bytes_in),
                      count_datum(client.bytes_out),
                      count_datum(client.dropped),
                      BoolGetDatum(client.throttled)};
    bool nulls[lengthof(values)] = {};
    nulls[1] = client.username.empty();
    if (result->setDesc->natts != lengthof(values))
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("the library and the extension's SQL are of different versions"),
                        errhint("Run ALTER EXTENSION pgmqtt UPDATE, or restart the server.")));
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

struct Rows {
    ReturnSetInfo* result;
    MemoryContext row_context;  // of one row: an answer may be of many long ones
};

void take_client(void* context, base::ByteView bytes) {
    auto* rows = static_cast<Rows*>(context);
    ClientRecord client;
    if (!decode(bytes, client)) elog(ERROR, "malformed answer of the pgmqtt broker");
    MemoryContext before = MemoryContextSwitchTo(rows->row_context);
    put_client(client, rows->result);
    MemoryContextSwitchTo(before);
    MemoryContextReset(rows->row_context);
}

}  // namespace
}  // namespace pgmqtt

PGMQTT_FUNCTION(pgmqtt_client_rows) {
    using namespace pgmqtt;
    pg::value_or_throw(pg::guard([fcinfo] {
        InitMaterializedSRF(fcinfo, 0);
        Rows rows{
            reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo),
            AllocSetContextCreate(CurrentMemoryContext, "pgmqtt client", ALLOCSET_DEFAULT_SIZES)};
        pg::ask_broker({}, take_client, &rows);
        MemoryContextDelete(rows.row_context);
    }));
    return Datum{0};
}
