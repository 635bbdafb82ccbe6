// Session state in pgmqtt.session and session_subscription. The queues are in store/queue_log.h.
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

    pg::Statement end_session_;
    pg::Statement end_session_subscriptions_;
    pg::Statement write_session_;
    pg::Statement end_subscription_;
    pg::Statement write_subscription_;
};

}  // namespace pgmqtt::store
