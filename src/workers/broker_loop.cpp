#include "workers/broker_loop.h"

extern "C" {
#include <pgstat.h>
#include <utils/timestamp.h>
}

#include <algorithm>
#include <chrono>
#include <cstring>

#include "auth/password.h"
#include "pg/extension.h"
#include "pg/failpoint.h"
#include "pg/log.h"
#include "pg/settings.h"
#include "pg/shared.h"
#include "sink/definition.h"
#include "store/blockers.h"
#include "store/commands.h"
#include "store/durability_rules.h"
#include "store/retained.h"
#include "store/session_load.h"
#include "workers/broker_settings.h"

namespace pgmqtt::workers {

using broker::BatchKind;
using broker::BatchReader;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kListenRetry{2000};
constexpr milliseconds kRoutesRetry{1000};
constexpr milliseconds kStorePatience{10000};
// Checking a password takes milliseconds: a storm of log-ins must not starve who is connected.
constexpr size_t kPasswordsPerTurn = 1;

uint64_t random_seed() {
    uint64_t seed = 0;
    if (!pg_strong_random(&seed, sizeof seed)) throw std::runtime_error("no random bytes");
    return seed;
}

int level_of(broker::LogLine::Level level) {
    switch (level) {
        case broker::LogLine::Level::kDebug:
            return DEBUG1;
        case broker::LogLine::Level::kWarning:
            return WARNING;
        default:
            return LOG;
    }
}

}  // namespace

BrokerLoop::BrokerLoop()
    : broker_(broker_config(), random_seed(), this),
      server_(network_limits()),
      store_(pg::Worker::kBroker, pg::Worker::kStore),
      sink_(pg::Worker::kBroker, pg::Worker::kSink),
      cdc_(pg::Worker::kBroker, pg::Worker::kCdc),
      now_(base::read_clocks()) {}

BrokerLoop::~BrokerLoop() {
    pg::Shared* shared = pg::shared();
    shared->broker_listening.store(false);
    shared->broker_leaving.store(false);
    for (auto& counter : shared->broker_counters) counter.store(0, std::memory_order_relaxed);
}

bool BrokerLoop::start(const std::function<bool()>& wait) {
    if (!wait_for_store(wait)) return false;
    pg::failpoint(pg::Failpoint::kBrokerLoad);
    now_ = base::read_clocks();
    bool loaded = load_patiently(wait, [this] { return load_retained(); }) &&
                  load_patiently(wait, [this] { return load_sessions(); }) &&
                  load_patiently(wait, [this] { return try_load_routes(); });
    if (!loaded) return false;
    pg::shared()->broker_started_at.store(GetCurrentTimestamp());
    try_listen();
    return true;
}

// The store worker may still be writing what the broker before this one sent; who loads too early
// would give the same numbers again.
bool BrokerLoop::wait_for_store(const std::function<bool()>& wait) {
    auto complain_at = std::chrono::steady_clock::now() + kStorePatience;
    while (!store_.connect() || pg::shared()->store_epoch != store_.epoch()) {
        if (!wait()) return false;
        if (std::chrono::steady_clock::now() < complain_at) continue;
        pg::log(LOG, "pgmqtt broker waits for the store worker before it listens");
        complain_at = base::kNever;
    }
    store_epoch_ = store_.epoch();
    return true;
}

// A table that somebody has locked is tried again: nothing was taken over before the locks were
// there. So we do not stand in the way of DROP EXTENSION, which takes its locks one by one.
template <class Load>
bool BrokerLoop::load_patiently(const std::function<bool()>& wait, Load load) {
    auto complain_at = std::chrono::steady_clock::now() + kStorePatience;
    for (;;) {
        pg::Status status = load();
        if (status) return true;
        if (!pg::extension_exists()) return false;
        if (status.error().sqlstate != ERRCODE_LOCK_NOT_AVAILABLE)
            throw pg::Raised(std::move(status.error()));
        if (std::chrono::steady_clock::now() >= complain_at) {
            pg::log(LOG, "pgmqtt broker waits for a lock before it listens", store::lock_holders());
            complain_at = base::kNever;
        }
        if (!wait()) return false;
    }
}

pg::Status BrokerLoop::load_retained() {
    return store::load_retained(
        [this](const broker::MessageView& message) { broker_.load_retained(message, now_); });
}

pg::Status BrokerLoop::load_sessions() {
    pg::Status status = store::load_sessions(
        [this](const broker::StoreRecord& record) { broker_.load(record, now_); });
    if (!status) return status;
    broker_.loaded(now_);
    return store::load_commands(
        [this](const broker::CommandRecord& command) { broker_.load(command, now_); });
}

void BrokerLoop::configure() {
    broker_.configure(broker_config());
    server_.set_limits(network_limits());
    try_listen();
}

// Throws pg::Raised. A message that arrives before the routes are known would be acknowledged
// without having been stored: so this comes before listening.
void BrokerLoop::load_routes() {
    uint64_t configuration = pg::shared()->configuration.load(std::memory_order_acquire);
    broker_.set_sinks(sink::load_sink_routes());
    broker_.set_durability_rules(store::load_durability_rules());
    routes_seen_ = configuration;
    pg::shared()->broker_configuration.store(configuration, std::memory_order_release);
}

pg::Status BrokerLoop::try_load_routes() {
    try {
        load_routes();
        return base::Done{};
    } catch (const pg::Raised& raised) {
        return base::fail(raised.error());
    }
}

void BrokerLoop::follow_routes() {
    if (pg::shared()->configuration == routes_seen_ || now_.mono < retry_routes_at_) return;
    pg::Status status = try_load_routes();
    if (status) {
        retry_routes_at_ = {};
        return;
    }
    if (retry_routes_at_ == base::MonoTime{} && pg::extension_exists())
        pg::log(WARNING, "pgmqtt broker could not load sinks and durability rules", status.error());
    retry_routes_at_ = now_.mono + kRoutesRetry;
}

// A port in use is one log line and another try, never a crash loop.
void BrokerLoop::try_listen() {
    retry_listen_at_ = base::kNever;
    auto status = server_.listen(listen_addresses());
    pg::shared()->broker_listening.store(server_.listening());
    if (status) {
        if (!listen_problem_.empty()) pg::log(LOG, "pgmqtt listens on all its addresses again");
        listen_problem_.clear();
        return;
    }
    if (status.error() != listen_problem_)
        pg::log(WARNING, "pgmqtt cannot listen: " + status.error(), "It tries again every 2 s.",
                "Free the port, or change pgmqtt.port or pgmqtt.listen_addresses and reload.");
    listen_problem_ = status.error();
    retry_listen_at_ = now_.mono + kListenRetry;
}

void BrokerLoop::turn(bool workers_called) {
    now_ = base::read_clocks();
    if (now_.mono >= retry_listen_at_) try_listen();
    follow_routes();
    if (workers_called || cdc_held_) receive_from_workers();
    server_.turn(*this);
    authenticate_some();
    if (now_.mono >= broker_.next_timer()) broker_.tick(now_);
    carry_out_turn();
    publish_counters();
    backend_answers_.turn(broker_, now_);
}

void BrokerLoop::receive_from_workers() {
    if (store_.connect() && store_.epoch() != store_epoch_) {
        store_epoch_ = store_.epoch();
        broker_.resend_store();
    }
    if (sink_.connect() && sink_.epoch() != sink_epoch_) {
        sink_epoch_ = sink_.epoch();
        broker_.resend_sink();
    }
    if (cdc_.connect()) cdc_epoch_ = cdc_.epoch();
    receive_store();
    receive_sink();
    receive_cdc();
}

void BrokerLoop::receive_store() {
    base::ByteView bytes;
    while (store_.receive(bytes)) {
        BatchReader batch(bytes);
        if (!batch.ok()) continue;
        switch (batch.kind()) {
            case BatchKind::kCompletion:
                pg::failpoint(pg::Failpoint::kBrokerAcknowledge);
                store_done_ = batch.number();
                broker_.store_done(store_done_, now_);
                break;
            case BatchKind::kFetched:
                broker_.fetched(batch, now_);
                break;
            case BatchKind::kMove:
                move(batch);
                break;
            case BatchKind::kPublish:
                broker_.publish(broker::PublishSource::kOutbox, batch.number(), batch, now_);
                break;
            case BatchKind::kCommand:
                broker_.carry_out(batch, now_);
                break;
            default:
                break;
        }
    }
}

void BrokerLoop::move(BatchReader& records) {
    broker::MoveRecord record;
    while (records.next(record)) broker_.move(record, now_);
}

void BrokerLoop::receive_sink() {
    base::ByteView bytes;
    while (sink_.receive(bytes)) {
        BatchReader batch(bytes);
        if (!batch.ok() || batch.kind() != BatchKind::kCompletion) continue;
        broker::CompletionRecord completion;
        while (batch.next(completion)) broker_.sink_done(completion, now_);
    }
}

void BrokerLoop::receive_cdc() {
    base::ByteView bytes;
    while (!(cdc_held_ = !broker_.takes_publishes()) && cdc_.receive(bytes)) {
        BatchReader batch(bytes);
        if (batch.ok() && batch.kind() == BatchKind::kPublish)
            broker_.publish(broker::PublishSource::kCdc, batch.number(), batch, now_);
    }
}

void BrokerLoop::authenticate_some() {
    size_t passwords = 0;
    while (!authentications_.empty() && passwords < kPasswordsPerTurn) {
        broker::AuthRequest request = std::move(authentications_.front());
        authentications_.pop_front();
        if (request.has_username) ++passwords;
        broker_.authenticated(request.connection, auth::authenticate(request), now_);
    }
}

// Acting on a turn can bring new work (an anonymous log-in is answered at once, a resumed
// connection has bytes left): that is the next turn's, and timeout_ms() says so.
void BrokerLoop::carry_out_turn() {
    broker::Turn& turn = broker_.turn();
    for (auto& request : turn.authenticate) authentications_.push_back(std::move(request));
    if (!turn.store.empty()) {
        pg::failpoint(pg::Failpoint::kBrokerHandOver);
        store_sent_ = broker_.store_batch();
        store_.send(turn.store.finish(store_sent_));
        pg::failpoint(pg::Failpoint::kBrokerHandedOver);
    }
    if (!turn.fetch.empty()) store_.send(turn.fetch.finish(broker_.fetch_batch()));
    if (!turn.sink.empty()) sink_.send(turn.sink.finish(broker_.sink_batch()));
    for (uint64_t number : turn.publishes_done)
        cdc_.send(broker::batch_done(BatchKind::kPublishDone, number));
    for (uint64_t number : turn.outbox_done)
        store_.send(broker::batch_done(BatchKind::kPublishDone, number));
    for (uint64_t number : turn.commands_done)
        store_.send(broker::batch_done(BatchKind::kCommandDone, number));
    for (base::ConnectionId id : turn.dirty) flush(id);
    for (const broker::CloseRequest& request : turn.close) {
        if (!request.reason.empty() && pg::settings.log_connections)
            pg::log(LOG, "pgmqtt closes a connection: " + request.reason);
        server_.close(request.connection);
    }
    for (base::ConnectionId id : turn.resumed) server_.resume(id);
    for (const broker::LogLine& line : turn.log) pg::log(level_of(line.level), line.text);
    broker_.end_turn();
    store_.flush();
    sink_.flush();
    cdc_.flush();
}

void BrokerLoop::publish_counters() {
    static_assert(sizeof(broker::Counters) % sizeof(uint64_t) == 0);
    const broker::Counters& counters = broker_.counters();
    const auto* values = reinterpret_cast<const uint64_t*>(&counters);
    pg::Shared* shared = pg::shared();
    for (size_t i = 0; i < std::size(shared->broker_counters); ++i)
        shared->broker_counters[i].store(values[i], std::memory_order_relaxed);
}

long BrokerLoop::timeout_ms() const {
    if (server_.has_backlog() || !authentications_.empty()) return 0;
    if (backend_answers_.can_go_on()) return 0;
    if (cdc_held_ && broker_.takes_publishes()) return 0;
    base::MonoTime when =
        std::min({broker_.next_timer(), retry_listen_at_, backend_answers_.next()});
    if (pg::shared()->configuration != routes_seen_) when = std::min(when, retry_routes_at_);
    long timeout = -1;
    if (when != base::kNever) {
        auto left = std::chrono::ceil<milliseconds>(when - std::chrono::steady_clock::now());
        timeout = std::max<long>(0, static_cast<long>(left.count()));
    }
    int linger = server_.linger_deadline_ms();
    if (linger >= 0) timeout = timeout < 0 ? linger : std::min<long>(timeout, linger);
    return timeout;
}

bool BrokerLoop::queues_are_empty() const {
    return broker_.counters().pending == 0;
}

void BrokerLoop::shut_down(pg::WaitSet& wait) {
    auto deadline = std::chrono::steady_clock::now() + milliseconds(pg::settings.shutdown_timeout);
    server_.stop_listening();
    pg::shared()->broker_listening.store(false);
    pg::shared()->broker_leaving.store(true);
    now_ = base::read_clocks();
    // First what was received is stored and acknowledged, then everybody is told to go.
    while (!queues_are_empty() && pg::extension_exists() &&
           std::chrono::steady_clock::now() < deadline) {
        now_ = base::read_clocks();
        receive_from_workers();
        carry_out_turn();
        if (!queues_are_empty()) wait.wait(10, PG_WAIT_EXTENSION);
    }
    broker_.shut_down(now_);
    carry_out_turn();
    // Sessions and wills are stored as they are now, if there is still somebody to do it.
    auto unfinished = [this] {
        return server_.connections() > 0 || (!everything_is_stored() && store_.connected());
    };
    while (unfinished() && std::chrono::steady_clock::now() < deadline) {
        now_ = base::read_clocks();
        receive_from_workers();
        server_.turn(*this);
        carry_out_turn();
        if (unfinished()) wait.wait(10, PG_WAIT_EXTENSION);
    }
}

// --- net::Handler

void BrokerLoop::on_accepted(base::ConnectionId id, const net::PeerAddress& peer) {
    broker_.accepted(id, {peer.address, peer.port, peer.loopback, broker::TransportKind::kTcp},
                     now_);
}

size_t BrokerLoop::on_bytes(base::ConnectionId id, base::ByteView bytes) {
    size_t consumed = broker_.received(id, bytes, now_, &server_);
    if (broker_.paused(id)) server_.pause(id);
    return consumed;
}

void BrokerLoop::on_closed(base::ConnectionId id, const std::string&) {
    std::erase_if(authentications_, [id](const auto& request) { return request.connection == id; });
    broker_.disconnected(id, now_);
}

void BrokerLoop::on_drained(base::ConnectionId id) {
    broker_.drained(id, now_);
}

void BrokerLoop::flush(base::ConnectionId id) {
    server_.flush(id, *this);
}

base::Outbox* BrokerLoop::outbox(base::ConnectionId id) {
    return broker_.outbox(id);
}

void BrokerLoop::on_refused(size_t count, const std::string& reason) {
    pg::log(LOG, "pgmqtt refused " + std::to_string(count) + " connections: " + reason);
}

}  // namespace pgmqtt::workers
