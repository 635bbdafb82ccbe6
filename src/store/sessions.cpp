#include "store/sessions.h"

extern "C" {
#include <catalog/pg_type_d.h>
}

#include "base/hash.h"
#include "pg/columns.h"
#include "pg/datum.h"

namespace pgmqtt::store {
namespace {

Datum id_datum(uint64_t id) {
    return Int64GetDatum(static_cast<int64>(id));
}

Datum qos_datum(mqtt::Qos qos) {
    return Int16GetDatum(static_cast<int16>(qos));
}

Datum filter_hash(base::ByteView filter) {
    return id_datum(base::hash(filter));
}

}  // namespace

// No DELETE ... USING unnest(): planned while the table was small, it went through the whole table
// for every removed row, and 50,000 retained messages took seconds. With OFFSET 0 the array is the
// outer side of the join whatever the planner believes.
//
// unnest() of several arrays is a form of its own only where it is not qualified; search_path is
// pinned in the workers.
SessionTables::SessionTables()
    : end_session_("DELETE FROM pgmqtt.session WHERE session_id = ANY ($1)", {INT8ARRAYOID}),
      end_session_subscriptions_(
          "DELETE FROM pgmqtt.session_subscription WHERE session_id = ANY ($1)", {INT8ARRAYOID}),
      write_session_(
          "INSERT INTO pgmqtt.session AS s (session_id, client_id, username, created_at, "
          "disconnected_at, expiry_interval, will_topic, will_payload, will_qos, will_retain, "
          "will_properties, will_received_at, will_expires_at, will_delay) "
          "SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) "
          "ON CONFLICT (session_id) DO UPDATE SET client_id = excluded.client_id, "
          "username = excluded.username, created_at = excluded.created_at, "
          "disconnected_at = excluded.disconnected_at, expiry_interval = excluded.expiry_interval, "
          "will_topic = excluded.will_topic, will_payload = excluded.will_payload, "
          "will_qos = excluded.will_qos, will_retain = excluded.will_retain, "
          "will_properties = excluded.will_properties, "
          "will_received_at = excluded.will_received_at, "
          "will_expires_at = excluded.will_expires_at, will_delay = excluded.will_delay",
          {INT8ARRAYOID, BYTEAARRAYOID, BYTEAARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID,
           INT8ARRAYOID, BYTEAARRAYOID, BYTEAARRAYOID, INT2ARRAYOID, BOOLARRAYOID, BYTEAARRAYOID,
           TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID}),
      end_subscription_(
          "DELETE FROM pgmqtt.session_subscription WHERE ctid = ANY (ARRAY("
          "SELECT t.ctid FROM unnest($1, $2, $3) AS gone(session_id, filter_hash, filter) "
          "CROSS JOIN LATERAL (SELECT s.ctid FROM pgmqtt.session_subscription s "
          "WHERE s.session_id = gone.session_id AND s.filter_hash = gone.filter_hash "
          "AND s.filter = gone.filter OFFSET 0) t))",
          {INT8ARRAYOID, INT8ARRAYOID, BYTEAARRAYOID}),
      write_subscription_(
          "INSERT INTO pgmqtt.session_subscription (session_id, filter_hash, filter, qos, "
          "no_local, retain_as_published, retain_handling, subscription_id) "
          "SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)",
          {INT8ARRAYOID, INT8ARRAYOID, BYTEAARRAYOID, INT2ARRAYOID, BOOLARRAYOID, BOOLARRAYOID,
           INT2ARRAYOID, INT8ARRAYOID}) {}

void SessionTables::apply(const Net& net) {
    end_sessions(net);
    write_sessions(net);
    write_subscriptions(net);
}

void SessionTables::end_sessions(const Net& net) {
    if (net.ended_sessions.empty()) return;
    pg::Columns gone(net.ended_sessions.size(), {INT8OID});
    for (uint64_t id : net.ended_sessions) gone.add({id_datum(id)});
    const Datum* arrays = gone.arrays();
    end_session_subscriptions_.execute(arrays);
    end_session_.execute(arrays);
}

void SessionTables::write_sessions(const Net& net) {
    if (net.sessions.empty()) return;
    pg::Columns rows(
        net.sessions.size(),
        {INT8OID, BYTEAOID, BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, BYTEAOID, BYTEAOID,
         INT2OID, BOOLOID, BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID});
    for (const Net::Session& row : net.sessions) {
        const broker::StoredSession& session = row.session;
        const broker::MessageView& will = session.will;
        rows.add({id_datum(row.id), pg::bytea_datum(session.client_id),
                  pg::bytea_datum(session.username), pg::timestamptz_datum(session.created_at),
                  pg::timestamptz_datum(session.disconnected_at), id_datum(session.expiry_interval),
                  pg::bytea_datum(will.topic), pg::bytea_datum(will.payload), qos_datum(will.qos),
                  BoolGetDatum(will.retain), pg::bytea_datum(will.properties),
                  pg::timestamptz_datum(will.received_at), pg::timestamptz_datum(will.expires_at),
                  id_datum(session.will_delay)});
    }
    write_session_.execute(rows.arrays());
}

// No unique index could stand on a filter, so a changed one is removed and inserted.
void SessionTables::write_subscriptions(const Net& net) {
    size_t count = net.subscriptions.size() + net.unsubscribed.size();
    if (count == 0) return;
    pg::Columns gone(count, {INT8OID, INT8OID, BYTEAOID});
    pg::Columns rows(net.subscriptions.size(),
                     {INT8OID, INT8OID, BYTEAOID, INT2OID, BOOLOID, BOOLOID, INT2OID, INT8OID});
    for (const Net::Subscription& row : net.unsubscribed) {
        base::ByteView filter = row.subscription.filter;
        gone.add({id_datum(row.session_id), filter_hash(filter), pg::bytea_datum(filter)});
    }
    for (const Net::Subscription& row : net.subscriptions) {
        const broker::StoredSubscription& subscription = row.subscription;
        Datum session = id_datum(row.session_id);
        Datum hash = filter_hash(subscription.filter);
        Datum filter = pg::bytea_datum(subscription.filter);
        gone.add({session, hash, filter});
        rows.add({session, hash, filter, qos_datum(subscription.qos),
                  BoolGetDatum(subscription.no_local),
                  BoolGetDatum(subscription.retain_as_published),
                  Int16GetDatum(subscription.retain_handling), id_datum(subscription.identifier)});
    }
    end_subscription_.execute(gone.arrays());
    if (!rows.empty()) write_subscription_.execute(rows.arrays());
}

}  // namespace pgmqtt::store
