// MQTT as a pure state machine: packets, completions and time in, a Turn out.
//
// The invariant: memory may be ahead of the disk, the wire never. A PUBACK whose promise is a row
// or a stored retained message leaves only after the completion that says so came back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/input.h"
#include "base/outbox.h"
#include "base/output.h"
#include "base/time.h"
#include "broker/client_record.h"
#include "broker/config.h"
#include "broker/counters.h"
#include "broker/turn.h"

namespace pgmqtt::broker {

using base::Now;

// A sink as the broker knows it: a subscriber without a socket.
struct SinkRoute {
    uint32_t sink_id = 0;
    std::string filter;  // captures already turned into wildcards
    mqtt::Qos qos = mqtt::Qos::k1;
};

// How messages whose topic matches are stored.
struct DurabilityRule {
    std::string filter;
    Durability durability = Durability::kDurable;
};

enum class PublishSource : uint8_t { kCdc, kOutbox };

struct AuthVerdict {
    mqtt::ReasonCode reason = mqtt::ReasonCode::kSuccess;  // else: refused with this code
    std::string username;                                  // the role it acts as; empty: anonymous
};

struct Clearing;

class Broker {
   public:
    // `seed` makes hashes and assigned client identifiers unpredictable. Without an output, what is
    // in Turn::dirty is sent at the end of a turn only.
    Broker(const Config& config, uint64_t seed, base::Output* output = nullptr);
    ~Broker();
    Broker(const Broker&) = delete;

    // New limits hold for what comes next; nobody is disconnected.
    void configure(const Config& config);

    // Replaces the set of sinks. Messages already sent to a removed sink still complete.
    void set_sinks(std::vector<SinkRoute> sinks);

    // Replaces the rules. They go before Config::durability; of several that match a topic the one
    // that promises most.
    void set_durability_rules(std::vector<DurabilityRule> rules);

    // At start, before any client: what pgmqtt.retained holds.
    void load_retained(const MessageView& message, Now now);

    // At start, before any client: what the store holds of sessions, as kSession, kSubscribe,
    // kDelivery and kReceived records, all of a kind before the next kind. No messages: they are
    // fetched when their time comes. Deliveries come in any order. Then once
    // loaded(): every session is disconnected since its disconnected_at, or since now if it said
    // connected; what expired meanwhile ends, wills that came due are published.
    void load(const StoreRecord& record, Now now);
    void loaded(Now now);

    // --- inputs of the network
    void accepted(ConnectionId connection, Peer peer, Now now);

    // Bytes in order of arrival. Returns how many were consumed: less than all when a packet is
    // incomplete, when the connection is paused (paused() is true) or closing.
    size_t received(ConnectionId connection, base::ByteView bytes, Now now,
                    base::Input* input = nullptr);

    // The transport is gone, for whatever reason. The broker forgets the id.
    void disconnected(ConnectionId connection, Now now);

    // The transport took bytes out of the outbox; more may fit now.
    void drained(ConnectionId connection, Now now);

    bool paused(ConnectionId connection) const;

    // Null when the broker does not know the connection.
    base::Outbox* outbox(ConnectionId connection);

    void authenticated(ConnectionId connection, const AuthVerdict& verdict, Now now);

    // --- inputs of the workers
    void store_done(uint64_t batch, Now now);
    void sink_done(const CompletionRecord& completion, Now now);
    // What was asked for by Turn::fetch, in batches of any size.
    void fetched(BatchReader& records, Now now);
    // The log is to be cleaned up to an id: what is needed of it gets new ones, some at a time, and
    // a kMoved record says when that is done. Another one for the same log replaces it.
    void move(const MoveRecord& record, Now now);
    // Publishes from SQL. Turn::publishes_done (kCdc) or outbox_done (kOutbox) names the batch when
    // every message in it is routed and, where it must be, stored.
    void publish(PublishSource source, uint64_t batch, BatchReader& records, Now now);

    // False while memory is full: what comes from SQL and can wait should. True now and then even
    // so; next_timer() says when to ask again.
    bool takes_publishes() const;

    // The store or sink worker came back: everything unacknowledged goes into the next turn again.
    void resend_store();
    void resend_sink();

    // --- time
    base::MonoTime next_timer() const;  // kNever: nothing to wait for
    void tick(Now now);

    // --- steering from SQL. Turn::commands_done names the batch when all of it has happened and
    // what the store must know of it is in the turn. Those that were carried out do nothing again.
    void carry_out(BatchReader& commands, Now now);
    // At start, behind loaded(): those that wait; they will come again. What began after one was
    // given is not meant by it.
    void load(const CommandRecord& command, Now now);
    // False: there is no such client, or session.
    bool disconnect_client(base::ByteView client_id, mqtt::ReasonCode reason, Now now);
    bool delete_session(base::ByteView client_id, Now now);

    // Clears the retained messages that match a filter, some with each call. True when all are
    // cleared and stored so; when it waits for something, that is an input. A Clearing ends before
    // the broker.
    std::unique_ptr<Clearing> begin_clearing(base::ByteView filter);
    bool clear_some(Clearing& clearing, Now now);

    // DISCONNECT 0x8B (5.0), wills as the specification says; everybody into Turn::close.
    void shut_down(Now now);

    // What came of the inputs since the last call. Reused storage; valid until the next input.
    // The caller sends `store` under number store_batch(), `sink` under sink_batch(), and `fetch`
    // behind `store` under fetch_batch().
    Turn& turn();
    void end_turn();  // the caller has acted on it: clear

    const Counters& counters() const;
    // The first connected client at or behind `slot`, which moves behind it; false: there is none.
    // So who starts with 0 meets everybody who is there all the time, whatever happens between two
    // calls. The views are valid until the next input.
    bool describe_client(uint32_t& slot, ClientRecord& client, Now now) const;
    uint64_t store_batch() const;  // number of the batch in the current turn
    uint64_t sink_batch() const;
    uint64_t fetch_batch() const;

   private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace pgmqtt::broker
