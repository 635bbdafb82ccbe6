// What an administrator does to clients and sessions, and sees of them.
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
        end_early(*session);
    }
    settle(now);
    return true;
}

bool Broker::State::describe_client(uint32_t& slot, ClientRecord& client, Now now) const {
    while (slot < connections_.size()) {
        const Connection* c = connections_[slot++].get();
        if (c == nullptr || c->phase != Phase::kConnected) continue;
        const Session& session = *c->session;
        // By the monotonic clock: one that was set meanwhile must not show.
        auto silence = std::chrono::floor<std::chrono::microseconds>(now.mono - c->last_input);
        constexpr uint8_t kNotTheClient = kPausedForAuthentication;
        client = {.client_id = session.client_id,
                  .username = session.username,
                  .address = c->peer.address,
                  .port = c->peer.port,
                  .transport = c->peer.transport,
                  .version = c->version,
                  .connected_at = c->connected_at,
                  .last_packet_at = now.wall - silence,
                  .keep_alive = c->keep_alive,
                  .clean_start = c->clean_start,
                  .session_expiry = session.expiry_interval,
                  .subscriptions = session.subscriptions.size(),
                  .inflight_out = session.window.size(),
                  .inflight_in = c->receiving,
                  .queued = session.queued(),
                  .queued_bytes = session.queued_bytes,
                  .messages_in = c->traffic.messages_in,
                  .messages_out = c->traffic.messages_out,
                  .bytes_in = c->traffic.bytes_in,
                  .bytes_out = c->traffic.bytes_out,
                  .dropped = session.dropped,
                  .throttled = (c->paused & ~kNotTheClient) != 0};
        return true;
    }
    return false;
}

}  // namespace pgmqtt::broker
