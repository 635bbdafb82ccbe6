#include "broker/broker.h"

#include <algorithm>
#include <utility>

#include "broker/clearing.h"
#include "broker/state.h"

namespace pgmqtt::broker {

Broker::Broker(const Config& config, uint64_t seed, base::Output* output)
    : state_(std::make_unique<State>(config, seed, output)) {}
Broker::~Broker() = default;

void Broker::configure(const Config& config) {
    state_->configure(config);
}
void Broker::set_sinks(std::vector<SinkRoute> sinks) {
    state_->set_sinks(sinks);
}
void Broker::set_durability_rules(std::vector<DurabilityRule> rules) {
    state_->durability_rules_ = std::move(rules);
}
void Broker::load_retained(const MessageView& message, Now now) {
    state_->load_retained(message, now);
}
void Broker::load(const StoreRecord& record, Now now) {
    state_->load(record, now);
}
void Broker::loaded(Now now) {
    state_->loaded(now);
}

void Broker::accepted(ConnectionId connection, Peer peer, Now now) {
    state_->accepted(connection, std::move(peer), now);
}
size_t Broker::received(ConnectionId connection, base::ByteView bytes, Now now,
                        base::Input* input) {
    return state_->received(connection, bytes, now, input);
}
void Broker::disconnected(ConnectionId connection, Now now) {
    state_->disconnected(connection, now);
}
void Broker::drained(ConnectionId connection, Now now) {
    state_->drained(connection, now);
}

bool Broker::paused(ConnectionId connection) const {
    const Connection* c = state_->find(connection);
    return c != nullptr && c->paused != 0;
}

base::Outbox* Broker::outbox(ConnectionId connection) {
    Connection* c = state_->find(connection);
    return c != nullptr ? &c->outbox : nullptr;
}

void Broker::authenticated(ConnectionId connection, const AuthVerdict& verdict, Now now) {
    state_->authenticated(connection, verdict, now);
}

void Broker::store_done(uint64_t batch, Now now) {
    state_->store_done(batch, now);
}
void Broker::sink_done(const CompletionRecord& completion, Now now) {
    state_->sink_done(completion, now);
}
void Broker::fetched(BatchReader& records, Now now) {
    state_->fetched(records, now);
}
void Broker::move(const MoveRecord& record, Now now) {
    state_->move(record, now);
}
void Broker::publish(PublishSource source, uint64_t batch, BatchReader& records, Now now) {
    state_->publish(source, batch, records, now);
}
bool Broker::takes_publishes() const {
    return state_->takes_publishes();
}
void Broker::resend_store() {
    state_->pending_.resend_store(state_->turn_.store);
    state_->fetch_again();
}
void Broker::resend_sink() {
    state_->pending_.resend_sink(state_->turn_.sink);
}

base::MonoTime Broker::next_timer() const {
    return state_->next_timer();
}
void Broker::tick(Now now) {
    state_->tick(now);
}
void Broker::carry_out(BatchReader& commands, Now now) {
    state_->carry_out(commands, now);
}
void Broker::load(const CommandRecord& command, Now now) {
    state_->load(command, now);
}
bool Broker::disconnect_client(ByteView client_id, ReasonCode reason, Now now) {
    return state_->disconnect_client(client_id, reason, now);
}
bool Broker::delete_session(ByteView client_id, Now now) {
    return state_->delete_session(client_id, now);
}
void Broker::shut_down(Now now) {
    state_->shut_down(now);
}

Turn& Broker::turn() {
    return state_->turn_;
}
void Broker::end_turn() {
    state_->end_turn();
}
const Counters& Broker::counters() const {
    return state_->counters();
}
std::unique_ptr<Clearing> Broker::begin_clearing(ByteView filter) {
    return state_->begin_clearing(filter);
}
bool Broker::clear_some(Clearing& clearing, Now now) {
    return state_->clear_some(clearing, now);
}
bool Broker::describe_client(uint32_t& slot, ClientRecord& client, Now now) const {
    return state_->describe_client(slot, client, now);
}
uint64_t Broker::store_batch() const {
    return state_->pending_.store_batch();
}
uint64_t Broker::sink_batch() const {
    return state_->pending_.sink_batch();
}
uint64_t Broker::fetch_batch() const {
    return state_->fetch_batch_;
}

Broker::State::State(const Config& config, uint64_t seed, base::Output* output)
    : config_(config),
      output_(output),
      seed_(seed),
      retained_(seed),
      sys_retained_(seed),
      sessions_(0, base::SeededBytesHash{seed}),
      unstored_ends_(0, base::SeededBytesHash{seed}),
      subscriptions_(seed) {}

void Broker::State::begin_input(Now now) {
    constexpr std::chrono::hours kBefore{1};  // what is over when it is loaded
    if (now_.mono == base::MonoTime{}) far_clock_ = FarClock(now.mono - kBefore);
    now_ = now;
    if (load_.due(now.mono)) sample_load();
}

Connection* Broker::State::find(ConnectionId id) {
    if (id.slot >= connections_.size()) return nullptr;
    Connection* c = connections_[id.slot].get();
    return c != nullptr && c->id == id ? c : nullptr;
}

void Broker::State::configure(const Config& config) {
    config_ = config;
    if (config.sys_interval_ms == 0) sys_heard_ = false;
    hear_sys_at_once();
}

void Broker::State::set_sinks(const std::vector<SinkRoute>& routes) {
    for (const auto& subscription : sink_subscriptions_) subscriptions_.remove(*subscription);
    sink_subscriptions_.clear();
    sinks_.clear();
    for (const SinkRoute& route : routes) {
        // Several filters may feed one sink; a message goes to it once.
        Sink* sink = nullptr;
        for (const auto& known : sinks_) {
            if (known->id == route.sink_id) sink = known.get();
        }
        if (sink == nullptr) {
            sinks_.push_back(std::make_unique<Sink>());
            sink = sinks_.back().get();
            sink->id = route.sink_id;
        }
        auto subscription = std::make_unique<Subscription>();
        subscription->sink = sink;
        subscription->qos = route.qos;
        subscriptions_.add(route.filter, *subscription);
        sink_subscriptions_.push_back(std::move(subscription));
    }
    hear_sys_at_once();
}

void Broker::State::accepted(ConnectionId id, Peer peer, Now now) {
    begin_input(now);
    ++counters_.accepted;
    if (id.slot >= connections_.size()) connections_.resize(id.slot + 1);
    // A slot is free before it is used again; if not, nobody may be left dangling.
    if (connections_[id.slot]) disconnected(connections_[id.slot]->id, now);
    auto c = std::make_unique<Connection>();
    c->id = id;
    c->peer = std::move(peer);
    c->connect_deadline = now.mono + std::chrono::milliseconds(config_.connect_timeout_ms);
    connections_[id.slot] = std::move(c);
    if (shutting_down_) return close(*connections_[id.slot], "");
    arm(*connections_[id.slot]);
}

void Broker::State::disconnected(ConnectionId id, Now now) {
    begin_input(now);
    Connection* c = find(id);
    if (c == nullptr) return;
    if (c->session != nullptr) {
        ++counters_.connections_lost;
        leave(*c, true);
    }
    output_bytes_ -= c->output_counted;
    timers_.remove(*c);
    connections_[id.slot].reset();
    settle(now);
}

void Broker::State::drained(ConnectionId id, Now now) {
    begin_input(now);
    Connection* c = find(id);
    if (c == nullptr) return;
    count_output(*c);
    c->behind = !c->outbox.empty();
    if (c->phase != Phase::kConnected) return;
    if (c->outbox.size() <= config_.client_buffer) resume(*c, kPausedForOutput);
    note_taken(*c->session);
    pump(*c->session);
    settle(now);
}

void Broker::State::shut_down(Now now) {
    begin_input(now);
    shutting_down_ = true;
    // The wills first: whoever is still connected may get them. One with a delay that its session
    // lives to see is stored with it, and published by the broker after us.
    for (const auto& c : connections_) {
        if (c == nullptr || c->session == nullptr || !c->session->will) continue;
        Session& session = *c->session;
        if (session.expiry_interval == 0 || session.will_delay == 0) will_is_due(session);
    }
    settle(now);
    for (const auto& c : connections_) {
        if (c == nullptr || c->phase == Phase::kClosing) continue;
        send_disconnect(*c, ReasonCode::kServerShuttingDown);
        if (c->session != nullptr) leave(*c, true);
        close(*c, "");
    }
    settle(now);
}

void Broker::State::end_turn() {
    pending_.end_turn(turn_.store, turn_.sink, now_.mono);
    if (!turn_.fetch.empty()) ++fetch_batch_;
    for (ConnectionId id : turn_.dirty) {
        if (Connection* c = find(id)) note_sent(*c);
    }
    counters_.memory_maximum = std::max(counters_.memory_maximum, memory_used());
    search_budget_ = kSearchSteps;
    turn_.clear();
}

const Counters& Broker::State::counters() {
    counters_.retained = retained_.count();
    counters_.retained_bytes = retained_.bytes();
    counters_.pending = pending_.count();
    counters_.sessions = sessions_.size();
    counters_.memory = memory_used();
    counters_.memory_maximum = std::max(counters_.memory_maximum, counters_.memory);
    return counters_;
}

}  // namespace pgmqtt::broker
