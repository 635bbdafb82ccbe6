// What an administrator does to clients and sessions.
#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

bool Broker::State::disconnect_client(ByteView client_id, ReasonCode reason, Now now) {
    begin_input(now);
    Session* session = find_session(client_id);
    if (session == nullptr || session->connection == nullptr) return false;
    disconnect_for(*session->connection, reason, "");
    settle(now);
    return true;
}

// Connected or not; its will comes as whenever a session ends.
bool Broker::State::delete_session(ByteView client_id, Now now) {
    begin_input(now);
    Session* session = find_session(client_id);
    if (session == nullptr) return false;
    if (session->connection != nullptr) {
        session->expiry_interval = 0;
        disconnect_for(*session->connection, ReasonCode::kAdministrativeAction, "");
    } else {
        end_session(*session);
    }
    settle(now);
    return true;
}

}  // namespace pgmqtt::broker
