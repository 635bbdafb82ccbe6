#include "store/sessions.h"

extern "C" {
#include <catalog/pg_type_d.h>
}

#include "base/hash.h"
#include "pg/datum.h"
#include "store/columns.h"

namespace pgmqtt::store {
namespace {

// An array must stay far below the server's limit of 1 GB for a value.
constexpr size_t kBytesPerInsert = 64 << 20;

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

// unnest() of several arrays is a form of its own only where it is not qualified; search_path is
// pinned in the workers.
SessionTables::SessionTables()
    : end_session_(
          "DELETE FROM pgmqtt.session t USING unnest($1) AS gone(id) WHERE t.session_id = gone.id",
          {INT8ARRAYOID}),
      end_session_subscriptions_(
          "DELETE FROM pgmqtt.session_subscription t USING unnest($1) AS gone(id) "
          "WHERE t.session_id = gone.id",
          {INT8ARRAYOID}),
      end_session_deliveries_(
          "DELETE FROM pgmqtt.delivery t USING unnest($1) AS gone(id) WHERE t.session_id = gone.id",
          {INT8ARRAYOID}),
      end_session_received_(
          "DELETE FROM pgmqtt.received_packet t USING unnest($1) AS gone(id) "
          "WHERE t.session_id = gone.id",
          {INT8ARRAYOID}),
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
          "DELETE FROM pgmqtt.session_subscription t "
          "USING unnest($1, $2, $3) AS gone(session_id, filter_hash, filter) "
          "WHERE t.session_id = gone.session_id AND t.filter_hash = gone.filter_hash "
          "AND t.filter = gone.filter",
          {INT8ARRAYOID, INT8ARRAYOID, BYTEAARRAYOID}),
      write_subscription_(
          "INSERT INTO pgmqtt.session_subscription (session_id, filter_hash, filter, qos, "
          "no_local, retain_as_published, retain_handling, subscription_id) "
          "SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)",
          {INT8ARRAYOID, INT8ARRAYOID, BYTEAARRAYOID, INT2ARRAYOID, BOOLARRAYOID, BOOLARRAYOID,
           INT2ARRAYOID, INT8ARRAYOID}),
      write_message_(
          "INSERT INTO pgmqtt.message (message_id, topic, payload, qos, retain, properties, "
          "received_at, expires_at) SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8) "
          "ON CONFLICT (message_id) DO NOTHING",
          {INT8ARRAYOID, BYTEAARRAYOID, BYTEAARRAYOID, INT2ARRAYOID, BOOLARRAYOID, BYTEAARRAYOID,
           TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID}),
      end_message_(
          "DELETE FROM pgmqtt.message t USING unnest($1) AS gone(id) WHERE t.message_id = gone.id",
          {INT8ARRAYOID}),
      write_delivery_(
          "INSERT INTO pgmqtt.delivery (session_id, sequence, message_id, state, sent, qos, "
          "retain, subscription_ids) SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8) "
          "ON CONFLICT (session_id, sequence) DO UPDATE SET message_id = excluded.message_id, "
          "state = excluded.state, sent = excluded.sent, qos = excluded.qos, "
          "retain = excluded.retain, subscription_ids = excluded.subscription_ids",
          {INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT2ARRAYOID, BOOLARRAYOID, INT2ARRAYOID,
           BOOLARRAYOID, BYTEAARRAYOID}),
      end_delivery_(
          "DELETE FROM pgmqtt.delivery t USING unnest($1, $2) AS gone(session_id, sequence) "
          "WHERE t.session_id = gone.session_id AND t.sequence = gone.sequence",
          {INT8ARRAYOID, INT8ARRAYOID}),
      write_received_(
          "INSERT INTO pgmqtt.received_packet (session_id, packet_id) "
          "SELECT * FROM unnest($1, $2) ON CONFLICT (session_id, packet_id) DO NOTHING",
          {INT8ARRAYOID, INT4ARRAYOID}),
      end_received_(
          "DELETE FROM pgmqtt.received_packet t "
          "USING unnest($1, $2) AS gone(session_id, packet_id) "
          "WHERE t.session_id = gone.session_id AND t.packet_id = gone.packet_id",
          {INT8ARRAYOID, INT4ARRAYOID}) {}

void SessionTables::apply(const Net& net) {
    end_sessions(net);
    write_sessions(net);
    write_subscriptions(net);
    write_messages(net);
    write_deliveries(net);
    end_deliveries(net);
    end_messages(net);
    write_received(net);
}

void SessionTables::end_sessions(const Net& net) {
    if (net.ended_sessions.empty()) return;
    Columns gone(net.ended_sessions.size(), {INT8OID});
    for (uint64_t id : net.ended_sessions) gone.add({id_datum(id)});
    const Datum* arrays = gone.arrays();
    end_session_received_.execute(arrays);
    end_session_deliveries_.execute(arrays);
    end_session_subscriptions_.execute(arrays);
    end_session_.execute(arrays);
}

void SessionTables::write_sessions(const Net& net) {
    if (net.sessions.empty()) return;
    Columns rows(net.sessions.size(),
                 {INT8OID, BYTEAOID, BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, BYTEAOID,
                  BYTEAOID, INT2OID, BOOLOID, BYTEAOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID});
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
    Columns gone(count, {INT8OID, INT8OID, BYTEAOID});
    Columns rows(net.subscriptions.size(),
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

void SessionTables::write_messages(const Net& net) {
    if (net.messages.empty()) return;
    Columns rows(net.messages.size(), {INT8OID, BYTEAOID, BYTEAOID, INT2OID, BOOLOID, BYTEAOID,
                                       TIMESTAMPTZOID, TIMESTAMPTZOID});
    size_t bytes = 0;
    for (const Net::Message& row : net.messages) {
        const broker::MessageView& message = row.message;
        if (!rows.empty() && bytes + message.payload.size() > kBytesPerInsert) {
            write_message_.execute(rows.arrays());
            rows.clear();
            bytes = 0;
        }
        bytes += message.topic.size() + message.payload.size() + message.properties.size();
        rows.add({id_datum(row.id), pg::bytea_datum(message.topic),
                  pg::bytea_datum(message.payload), qos_datum(message.qos),
                  BoolGetDatum(message.retain), pg::bytea_datum(message.properties),
                  pg::timestamptz_datum(message.received_at),
                  pg::timestamptz_datum(message.expires_at)});
    }
    write_message_.execute(rows.arrays());
}

void SessionTables::end_messages(const Net& net) {
    if (net.ended_messages.empty()) return;
    Columns gone(net.ended_messages.size(), {INT8OID});
    for (uint64_t id : net.ended_messages) gone.add({id_datum(id)});
    end_message_.execute(gone.arrays());
}

void SessionTables::write_deliveries(const Net& net) {
    if (net.deliveries.empty()) return;
    Columns rows(net.deliveries.size(),
                 {INT8OID, INT8OID, INT8OID, INT2OID, BOOLOID, INT2OID, BOOLOID, BYTEAOID});
    for (const Net::Delivery& row : net.deliveries) {
        const broker::StoredDelivery& delivery = row.delivery;
        rows.add({id_datum(row.session_id), id_datum(row.sequence), id_datum(row.message_id),
                  Int16GetDatum(static_cast<int16>(delivery.state)), BoolGetDatum(delivery.sent),
                  qos_datum(delivery.qos), BoolGetDatum(delivery.retain),
                  pg::bytea_datum(delivery.subscription_identifiers)});
    }
    write_delivery_.execute(rows.arrays());
}

void SessionTables::end_deliveries(const Net& net) {
    if (net.ended_deliveries.empty()) return;
    Columns gone(net.ended_deliveries.size(), {INT8OID, INT8OID});
    for (const Net::Delivery& row : net.ended_deliveries)
        gone.add({id_datum(row.session_id), id_datum(row.sequence)});
    end_delivery_.execute(gone.arrays());
}

void SessionTables::write_received(const Net& net) {
    if (!net.received.empty()) {
        Columns rows(net.received.size(), {INT8OID, INT4OID});
        for (const Net::Packet& row : net.received)
            rows.add({id_datum(row.session_id), Int32GetDatum(row.packet_id)});
        write_received_.execute(rows.arrays());
    }
    if (net.released.empty()) return;
    Columns gone(net.released.size(), {INT8OID, INT4OID});
    for (const Net::Packet& row : net.released)
        gone.add({id_datum(row.session_id), Int32GetDatum(row.packet_id)});
    end_received_.execute(gone.arrays());
}

}  // namespace pgmqtt::store
