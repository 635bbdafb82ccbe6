// One turn of the broker worker: sockets and queues into the state machine, its Turn back out. This
// is the only place that knows both net/ and broker/.
#pragma once

#include "pg/backend.h"

#include <deque>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "broker/broker.h"
#include "net/server.h"
#include "pg/guard.h"
#include "pg/queue.h"
#include "pg/wait.h"
#include "workers/backend_answers.h"

namespace pgmqtt::workers {

class BrokerLoop final : private net::Handler, private base::Output {
   public:
    BrokerLoop();
    ~BrokerLoop();

    int poll_fd() const { return server_.poll_fd(); }

    // Before the first turn: retained messages, sessions, sinks, listeners. Calls `wait` while it
    // has to wait for another worker; false: `wait` said that it is not wanted any more.
    bool start(const std::function<bool()>& wait);

    // Settings were reloaded.
    void configure();

    // `workers_called`: one of the other workers, or somebody else, set our latch.
    void turn(bool workers_called);

    // How long nothing needs to happen; milliseconds, -1: until somebody wakes us.
    long timeout_ms() const;

    // DISCONNECT 0x8B to everybody, what is in the queues acknowledged, bounded by
    // shutdown_timeout.
    void shut_down(pg::WaitSet& wait);

   private:
    // net::Handler
    void on_accepted(base::ConnectionId id, const net::PeerAddress& peer) override;
    size_t on_bytes(base::ConnectionId id, base::ByteView bytes) override;
    void on_closed(base::ConnectionId id, const std::string& reason) override;
    void on_drained(base::ConnectionId id) override;
    base::Outbox* outbox(base::ConnectionId id) override;
    void on_refused(size_t count, const std::string& reason) override;
    // base::Output
    void flush(base::ConnectionId id) override;

    bool wait_for_store(const std::function<bool()>& wait);
    template <class Load>
    bool load_patiently(const std::function<bool()>& wait, Load load);
    pg::Status load_retained();
    pg::Status load_sessions();
    void load_routes();
    pg::Status try_load_routes();
    void follow_routes();
    void try_listen();
    void receive_from_workers();
    void receive_store();
    void move(broker::BatchReader& records);
    void receive_sink();
    void receive_cdc();
    void authenticate_some();
    void carry_out_turn();
    void publish_counters();
    bool queues_are_empty() const;
    bool everything_is_stored() const { return store_done_ >= store_sent_; }

    broker::Broker broker_;
    net::Server server_;
    pg::Link store_;
    pg::Link sink_;
    pg::Link cdc_;
    uint64_t store_sent_ = 0;  // number of the last batch
    uint64_t store_done_ = 0;
    uint32_t store_epoch_ = 0;
    uint32_t sink_epoch_ = 0;
    uint32_t cdc_epoch_ = 0;
    std::deque<broker::AuthRequest> authentications_;
    BackendAnswers backend_answers_;
    bool cdc_held_ = false;  // batches may be left in the queue: nobody will wake us for them
    base::Now now_;
    base::MonoTime retry_listen_at_ = base::kNever;
    std::string listen_problem_;
    uint64_t routes_seen_ = 0;
    base::MonoTime retry_routes_at_{};  // set while loading them fails
};

}  // namespace pgmqtt::workers
