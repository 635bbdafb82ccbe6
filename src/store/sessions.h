// Session state in pgmqtt.session, session_subscription, message, delivery and received_packet.
#pragma once

#include "pg/guard.h"

#include "broker/session_changes.h"
#include "pg/statement.h"

namespace pgmqtt::store {

class SessionTables {
   public:
    SessionTables();

    // Set-based, inside a transaction; may raise. The same again changes nothing.
    void apply(const broker::SessionNetEffect& net);

   private:
    using Net = broker::SessionNetEffect;

    void end_sessions(const Net& net);
    void write_sessions(const Net& net);
    void write_subscriptions(const Net& net);
    void write_messages(const Net& net);
    void end_messages(const Net& net);
    void write_deliveries(const Net& net);
    void end_deliveries(const Net& net);
    void write_received(const Net& net);

    pg::Statement end_session_;
    pg::Statement end_session_subscriptions_;
    pg::Statement end_session_deliveries_;
    pg::Statement end_session_received_;
    pg::Statement write_session_;
    pg::Statement end_subscription_;
    pg::Statement write_subscription_;
    pg::Statement write_message_;
    pg::Statement end_message_;
    pg::Statement write_delivery_;
    pg::Statement end_delivery_;
    pg::Statement write_received_;
    pg::Statement end_received_;
};

}  // namespace pgmqtt::store
