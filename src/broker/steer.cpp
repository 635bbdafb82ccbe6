// What an administrator does to clients and sessions, and sees of them.
#include <utility>
#include <vector>

#include "broker/log_text.h"
#include "broker/state.h"

namespace pgmqtt::broker {

void Broker::State::carry_out(BatchReader& commands, Now now) {
    std::vector<uint64_t> ids;
    bool again = false;
    commands_.batch = commands.number();
    commands_.ending.clear();
    CommandRecord command;
    while (commands.next(command)) {
        bool known = commands_.carried_out.contains(command.id);
        again = again || known;
        ids.push_back(command.id);
        if (command.action == CommandAction::kDisconnect) {
            if (!known) disconnect_client(command.client_id, command.reason, now);
            continue;
        }
        if (!known) delete_session(command.client_id, now);
        const Session* session = find_session(command.client_id);
        if (session != nullptr && session->ends_in_slices) commands_.ending.insert(session->id);
    }
    // Only when the rows of one batch are gone comes another.
    if (!again) commands_.carried_out.clear();
    commands_.carried_out.insert(ids.begin(), ids.end());
    if (commands_.ending.empty()) commands_done();
}

void Broker::State::load(const CommandRecord& command, Now now) {
    commands_.carried_out.insert(command.id);
    if (command.action != CommandAction::kDeleteSession) return;  // nobody is connected
    const Session* session = find_session(command.client_id);
    if (session != nullptr && session->created_at <= command.given_at)
        delete_session(command.client_id, now);
}

// The batch is under way no more.
void Broker::State::commands_done() {
    turn_.commands_done.push_back(std::exchange(commands_.batch, 0));
}

void Broker::State::command_saw_end(const Session& session) {
    if (commands_.ending.erase(session.id) == 0 || !commands_.ending.empty()) return;
    commands_done();
}

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
