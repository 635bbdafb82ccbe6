#include "net/server.h"

#include <algorithm>
#include <new>

#include "net/server_state.h"

namespace pgmqtt::net {

namespace {

// What a connection may read in a crowded turn, whatever the turn's budget: less would cost a
// system call for too little.
constexpr size_t kLeastShare = 16 << 10;

}  // namespace

Server::Server(const Limits& limits) : state_(std::make_unique<State>(limits)) {}
Server::~Server() = default;

void Server::set_limits(const Limits& limits) {
    state_->limits = limits;
}

base::Status<std::string> Server::listen(const std::vector<ListenAddress>& addresses) {
    return state_->listeners.listen(addresses);
}
bool Server::listening() const {
    return !state_->listeners.empty();
}
void Server::stop_listening() {
    state_->listeners.close_all();
}

int Server::poll_fd() const {
    return state_->poller.fd();
}
void Server::turn(Handler& handler) {
    state_->turn(handler);
}
bool Server::has_backlog() const {
    return state_->has_backlog();
}

void Server::flush(ConnectionId id, Handler& handler) {
    state_->flush(id, handler);
}
void Server::pause(ConnectionId id) {
    state_->pause(id);
}
void Server::resume(ConnectionId id) {
    state_->resume(id);
}
void Server::close(ConnectionId id) {
    state_->close(id);
}
int Server::linger_deadline_ms() const {
    return state_->deadline_ms();
}

void Server::expect(size_t size) {
    state_->expect(size);
}
base::KeptInput Server::keep(size_t bytes) {
    return state_->keep(bytes);
}

size_t Server::connections() const {
    return state_->table.size();
}
size_t Server::input_bytes() const {
    return state_->input_bytes;
}

void Server::State::turn(Handler& handler) {
    collect_events();
    feed_starved();
    serve_queue(handler);
    settle(handler);
    // After settling: who left makes room for who waits. After serving: a storm of connects cannot
    // starve those who are in.
    accept_waiting(handler);
    settle(handler);
}

bool Server::State::has_backlog() const {
    const bool can_feed =
        !starved_.empty() && (favoured_ == ConnectionTable::kNone || has_input_room());
    return !queue_.empty() || !closing_.empty() || !closed_.empty() || can_feed;
}

int Server::State::deadline_ms() const {
    base::MonoTime due = listeners.suspended() ? retry_accept_at_ : base::kNever;
    if (favoured_ != ConnectionTable::kNone) due = std::min(due, favoured_until_);
    const uint32_t first = table.first_lingering();
    if (first != ConnectionTable::kNone) due = std::min(due, table.at(first).linger_until);
    if (due == base::kNever) return -1;
    const auto left = due - base::MonoTime::clock::now();
    // Rounded up: waking a little early would find nothing to do and wake again.
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::max<decltype(ms)>(ms, 0));
}

void Server::State::collect_events() {
    const size_t count = poller.poll();
    for (size_t i = 0; i < count; ++i) note_event(poller.event(i));
}

void Server::State::note_event(const PollEvent& event) {
    const ConnectionId id{static_cast<uint32_t>(event.token >> 32),
                          static_cast<uint32_t>(event.token)};
    if (id.slot == Listeners::kTokenSlot) return listeners.mark_ready(id.generation);
    Connection* connection = table.find(id);
    if (connection == nullptr) return;
    Connection& c = *connection;
    if (event.hangup) c.hangup = true;
    if (event.readable) {
        c.readable = true;
        if (c.output_waits_for_read) c.writable = true;
    }
    if (event.writable) {
        c.writable = true;
        if (c.input_waits_for_write) c.readable = true;
        c.input_waits_for_write = false;
    }
    if (!c.paused || c.writable) enqueue(id.slot);
    // The first bytes for a paused connection wake us, the next ones must not. Not done by pause():
    // most pauses are over before anything arrives.
    if (c.paused && event.readable && !c.output_waits_for_read) {
        watch(id.slot, false, c.watching_write);
    }
}

void Server::State::serve_queue(Handler& handler) {
    serving_.clear();
    serving_.swap(queue_);
    if (serving_.empty()) return;
    const size_t share = std::max(limits.turn_budget / serving_.size(), kLeastShare);
    const size_t budget = std::min(share, limits.read_budget);
    for (const uint32_t slot : serving_) {
        table.at(slot).queued = false;
        serve(slot, budget, handler);
    }
}

void Server::State::settle(Handler& handler) {
    do {
        for (size_t i = 0; i < closing_.size(); ++i) {
            const uint32_t slot = closing_[i];
            if (table.at(slot).closing()) advance_close(slot, limits.read_budget, handler);
        }
        closing_.clear();
        // After those were begun: however late we are, the last bytes are tried once.
        finish_lingering();
        tell_closed(handler);
    } while (!closing_.empty() || !closed_.empty());
}

void Server::State::finish_lingering() {
    if (table.first_lingering() == ConnectionTable::kNone) return;
    const base::MonoTime now = base::MonoTime::clock::now();
    for (uint32_t slot; (slot = table.first_lingering()) != ConnectionTable::kNone;) {
        const Connection& connection = table.at(slot);
        if (connection.linger_until > now) break;
        finish(slot, connection.close_reason);
    }
}

void Server::State::tell_closed(Handler& handler) {
    for (size_t i = 0; i < closed_.size(); ++i) {
        const Closed closed = std::move(closed_[i]);
        table.remove(closed.id.slot);
        try {
            handler.on_closed(closed.id, closed.reason);
        } catch (const std::bad_alloc&) {
            // It is gone all the same, and the others want to hear about their own.
        }
    }
    if (!closed_.empty() && listeners.suspended()) retry_accept_at_ = base::MonoTime{};
    closed_.clear();
}

void Server::State::pause(ConnectionId id) {
    Connection* connection = table.find(id);
    if (connection != nullptr && !connection->closing()) connection->paused = true;
}

void Server::State::resume(ConnectionId id) {
    Connection* connection = table.find(id);
    if (connection == nullptr || !connection->paused) return;
    connection->paused = false;
    connection->show_again = true;
    watch(id.slot, true, connection->watching_write);
    enqueue(id.slot);
}

void Server::State::enqueue(uint32_t slot) {
    Connection& connection = table.at(slot);
    if (connection.queued) return;
    connection.queued = true;
    queue_.push_back(slot);
}

void Server::State::watch(uint32_t slot, bool read, bool write) {
    Connection& c = table.at(slot);
    if (c.watching_read == read && c.watching_write == write) return;
    c.watching_read = read;
    c.watching_write = write;
    const ConnectionId id = table.id_of(slot);
    poller.rewatch_connection(c.transport->fd(), uint64_t{id.slot} << 32 | id.generation, read,
                              write);
}

}  // namespace pgmqtt::net
