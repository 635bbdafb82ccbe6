// The state behind Broker. Its member functions are spread over files by verb: received.cpp takes
// bytes apart and hands each packet to the file that is named after it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "broker/broker.h"
#include "broker/connection.h"
#include "broker/deadline_heap.h"
#include "broker/fifo.h"
#include "broker/load_averages.h"
#include "broker/pending.h"
#include "broker/retained_store.h"
#include "broker/route.h"
#include "broker/session.h"
#include "broker/subscription_tree.h"
#include "broker/sys_topics.h"
#include "broker/waiting.h"
#include "mqtt/codec.h"

namespace pgmqtt::broker {

using mqtt::Qos;
using mqtt::ReasonCode;
using mqtt::Version;

class Broker::State {
   public:
    State(const Config& config, uint64_t seed, base::Output* output);

    // --- broker.cpp
    void begin_input(Now now);
    Connection* find(ConnectionId id);
    void configure(const Config& config);
    void set_sinks(const std::vector<SinkRoute>& routes);
    void accepted(ConnectionId id, Peer peer, Now now);
    void disconnected(ConnectionId id, Now now);
    void drained(ConnectionId id, Now now);
    void shut_down(Now now);
    void end_turn();
    const Counters& counters();

    // --- received.cpp: bytes to packets
    size_t received(ConnectionId id, ByteView bytes, Now now, base::Input* input);

    // --- connect.cpp
    void authenticated(ConnectionId id, const AuthVerdict& verdict, Now now);

    // --- load.cpp
    void load(const StoreRecord& record, Now now);
    void loaded(Now now);

    // --- steer.cpp
    void carry_out(BatchReader& commands, Now now);
    void load(const CommandRecord& command, Now now);
    bool disconnect_client(ByteView client_id, ReasonCode reason, Now now);
    bool delete_session(ByteView client_id, Now now);

    bool describe_client(uint32_t& slot, ClientRecord& client, Now now) const;

    // --- clear_retained.cpp
    std::unique_ptr<Clearing> begin_clearing(ByteView filter);
    bool clear_some(Clearing& clearing, Now now);

    // --- sql_publish.cpp
    void load_retained(const MessageView& message, Now now);
    void publish(PublishSource source, uint64_t batch, BatchReader& records, Now now);
    bool takes_publishes() const;

    // --- fetch.cpp: messages back from the store
    void fetched(BatchReader& records, Now now);
    void fetch_again();

    // --- move.cpp: the store cleans its log
    void move(const MoveRecord& record, Now now);

    // --- finish.cpp: what workers did
    void store_done(uint64_t batch, Now now);
    void sink_done(const CompletionRecord& completion, Now now);

    // --- timers.cpp
    base::MonoTime next_timer() const;
    void tick(Now now);

    Config config_;
    base::Output* const output_;
    Turn turn_;
    Pending pending_;
    uint64_t fetch_batch_ = 1;  // of the current turn
    std::vector<DurabilityRule> durability_rules_;

   private:
    friend class Broker;

    // --- received.cpp
    void note_life(Connection& c, size_t consumed, size_t unfinished);
    void refuse_bad_frame(Connection& c, const mqtt::Frame& frame, const mqtt::DecodeError& error);
    bool read_connect(Connection& c, ByteView bytes, size_t& consumed, Now now);
    void handle(Connection& c, const mqtt::Frame& frame, Now now);
    void handle(Connection& c, mqtt::Packet& packet);

    // --- connect.cpp
    void handle_connect(Connection& c, const mqtt::Frame& frame, ByteView packet);
    void refuse_malformed_connect(Connection& c, const mqtt::DecodeError& error);
    void refuse_connect(Connection& c, ReasonCode reason, const char* detail);
    void admit(Connection& c, const std::string& username);
    bool waits_for_end(Connection& c, const mqtt::Connect& connect, const std::string& username);
    void accept_connect(Connection& c, const mqtt::Connect& connect, const std::string& username);
    void open(Connection& c);
    void take_over(Connection& old, const Connection& by);
    void agree_on_limits(Connection& c, const mqtt::Connect& connect, mqtt::Connack& connack);
    uint32_t agree_on_expiry(const mqtt::Connect& connect, mqtt::Connack& connack) const;
    std::string assign_client_id();

    // --- publish.cpp
    void handle_publish(Connection& c, mqtt::Publish& publish, Now now);
    bool resolve_alias(Connection& c, mqtt::Publish& publish);
    bool within_quota(Connection& c, const mqtt::Publish& publish);
    void refuse_publish(Connection& c, const mqtt::Publish& publish, ReasonCode reason);
    void acknowledge(Connection& c, OwedAck ack);
    void owe(Connection& c, OwedAck ack);
    void flush_owed(Connection& c);
    void send_ack(Connection& c, const OwedAck& ack);

    // --- exactly_once.cpp: QoS 2 from a client, section 4.3.3
    bool handle_repetition(Connection& c, const mqtt::Publish& publish);
    void owe_pubrec(Connection& c, uint16_t packet_id, const Routed& routed);
    void record_received(Session& session, uint16_t packet_id, ReceivedPublish& received,
                         Pending::PublishId waiting = Pending::kNone);
    void put_received(const Session& session, uint16_t packet_id, uint64_t stored_id,
                      StoreKind kind, Pending::PublishId waiting = Pending::kNone);
    void finish_pubrec(const FinishedPublish& finished);
    void pubrec_ready(Session& session, uint16_t packet_id, ReasonCode reason,
                      const std::string& reason_string);
    void handle_pubrel(Connection& c, const mqtt::Pubrel& pubrel);
    void release(Session& session, uint16_t packet_id);

    // --- sys_publish.cpp: $SYS
    void sample_load();
    base::MonoTime next_sys() const;
    void hear_sys();
    void hear_sys_at_once();
    void refresh_sys();
    void publish_sys();
    static bool is_heard(const std::vector<Subscription*>& matches);
    void tell(const Message& value);

    // --- route.cpp: a message to its receivers
    Routed route(mqtt::Publish& publish, const Origin& origin, Now now);
    void begin_route(mqtt::Publish& publish, const Origin& origin, Now now);
    void aim(const Origin& origin);
    void aim_at_session(Subscription& subscription);
    void aim_at_sink(Subscription& subscription);
    bool would_be_rejected();
    bool retain(Routed& routed);
    void hand_to_sinks(const Origin& origin, Routed& routed);
    static void identify(const Origin& origin, SinkRecord& record);
    Pending::PublishId pending_of(Routed& routed);
    const MessagePtr& route_message();
    void keep_payload(Message& message);
    MessageView route_view();
    ByteView route_properties();
    size_t route_bytes();
    RetainedLimits retained_limits() const;

    // --- shared_subscription.cpp
    void aim_at_group(ShareGroup& group);
    Subscription& choose_member(ShareGroup& group, Qos qos, size_t bytes);
    int readiness(const Session& session, Qos qos, size_t bytes) const;
    void hand_over(Session& session);
    void hand_over(const Delivery& delivery);
    void deliver_orphan(const Orphan& orphan);

    // --- state_memory.cpp: what clients make us keep without publishing
    static uint64_t session_cost(ByteView client_id, ByteView username);
    static uint64_t subscription_cost(ByteView filter);
    bool has_room_for_state(uint64_t bytes) const;

    // --- deliver.cpp: a message to one receiver, now or later
    void deliver(const Target& target, Routed& routed);
    void deliver_stored(const Target& target, Qos qos, bool retain, Routed& routed);
    Delivery route_delivery(const Target& target, Qos qos, bool retain, bool with_message);
    bool must_queue(const Session& session, Qos qos) const;
    bool send_now(Connection& c, const Target& target, Delivery& delivery);
    OutgoingAliases::Choice choose_alias(Connection& c);
    const Variant& odd_variant(const Connection& c, const Target& target, Qos qos, bool retain,
                               OutgoingAliases::Choice alias);
    const Variant& variant(Version version, Qos qos, bool retain);
    void encode_variant(Variant& variant, Version version);
    bool within_queue_limits(const Session& session, size_t bytes) const;
    bool fits_queue(const Session& session, Qos qos, size_t bytes) const;
    bool make_room(Session& session, Qos qos, size_t bytes);
    size_t window_limit(const Connection& c) const;

    // --- queue.cpp: what waits for a session, near (with its messages) or far (in the store)
    static bool is_stored(const Session& session, Qos qos);
    size_t near_limit(const Session& session) const;
    bool may_be_near(const Session& session, size_t bytes) const;
    void push(Session& session, Delivery delivery);
    void push_queue(Session& session, Delivery delivery);
    base::MonoTime append(Session& session, Delivery delivery);
    static Delivery* find_near(Session& session, uint64_t sequence);
    void push_far(Session& session, const Delivery& delivery);
    StoredEntry far_entry(Session& session, const Delivery& delivery);
    Delivery delivery_of(const Session& session, const StoredEntry& entry) const;
    Delivery take_far(Session& session);
    void forget_far(Session& session, const StoredEntry& entry);
    void count_queued(Session& session, uint32_t bytes, base::MonoTime at);
    void count_taken(Session& session, uint32_t bytes);
    Delivery take_queued(Session& session);
    void drop_queued(Session& session);
    void put_away(Session& session);

    // --- expiry.cpp: what ends by itself
    base::MonoTime deadline(const Delivery& delivery) const;
    base::MonoTime deadline(const StoredEntry& entry) const;
    static base::MonoTime due(const Session& session);
    void arm(Session& session);
    void look_at_sessions();
    void session_timer(Session& session, size_t& budget);
    bool is_over(const Session& session) const;
    void expire_session(Session& session);
    void end_early(Session& session);
    void end_in_slices(Session& session);
    void put_in_slices(Session& session);
    base::MonoTime next_slice() const;
    void expire_slice();
    bool expire_slice(Session& session, size_t& budget);
    bool shorten(Session& session, size_t& budget);
    void drop_expired(Session& session, size_t& budget);
    void expire_retained();

    // --- pump.cpp: what waited goes on as far as the client can take it
    void pump(Session& session);
    bool pump_retained(Session& session);
    bool find_retained(Connection& c, RetainedRun& run);
    bool pump_queue(Session& session);
    bool can_start(Session& session, Qos qos);
    void start(Session& session, Delivery delivery);
    void flush_window(Session& session);
    void flush_releases(Session& session);
    bool send_kept(Connection& c, const Delivery& delivery, uint16_t packet_id);

    // --- fetch.cpp
    void look_ahead(Session& session);
    bool refill(Session& session);
    bool ask(Session& session, Delivery& delivery);
    void answer_waiter(const Fetch::Waiter& waiter, uint64_t message_id, const MessagePtr& message);
    Delivery* find_asked(Session& session, uint64_t sequence);
    void drop_missing(Session& session, uint64_t sequence);
    void fetch_more();

    // --- move.cpp
    Moving& moving_in(Durability durability) {
        return moving_[durability == Durability::kUnlogged ? 1 : 0];
    }
    bool must_move(const Moving& moving, const StoredAs& stored) const;
    base::MonoTime next_move() const;
    void move_some();
    void move_some(Moving& moving);
    bool look_through(Moving& moving);
    bool look_through_far(Moving& moving, Session& session, size_t& budget,
                          std::vector<MoveRef>& found);
    void look_through_rest(Moving& moving, Session& session, std::vector<MoveRef>& found);
    bool next_ref(Moving& moving, MoveRef& ref);
    uint32_t move_ref(Moving& moving, const MoveRef& ref);
    StoredAs copy_of(Moving& moving, const StoredAs& stored);
    void note_reference(const StoredAs& stored, const Session& session, uint64_t sequence);

    // --- acknowledge.cpp
    void handle_puback(Connection& c, const mqtt::Puback& puback);
    void handle_pubrec(Connection& c, const mqtt::Pubrec& pubrec);
    void handle_pubcomp(Connection& c, const mqtt::Pubcomp& pubcomp);
    void send_pubrel(Connection& c, uint16_t packet_id, ReasonCode reason);

    // --- subscribe.cpp, unsubscribe.cpp
    void handle_subscribe(Connection& c, const mqtt::Subscribe& subscribe);
    void answer(Connection& c, const mqtt::Packet& packet, bool when_stored);
    ReasonCode subscribe_one(Session& session, const mqtt::Subscription& wanted,
                             uint32_t identifier, bool& is_new);
    bool may_subscribe(const Session& session, ByteView filter) const;
    void put_subscription(Session& session, const mqtt::Subscription& wanted, uint32_t identifier);
    void queue_retained(Session& session, const mqtt::Subscription& wanted, Qos granted,
                        uint32_t identifier);
    void remove_subscription(ByteView filter, Subscription& subscription);
    void forget_subscriptions(Session& session);
    static void forget_retained_run(Session& session, ByteView filter);
    void handle_unsubscribe(Connection& c, const mqtt::Unsubscribe& unsubscribe);

    // --- disconnect.cpp: how connections and sessions end
    void handle_disconnect(Connection& c, const mqtt::Disconnect& disconnect);
    void protocol_error(Connection& c, ReasonCode reason, const char* detail);
    void send_disconnect(Connection& c, ReasonCode reason);
    void disconnect_for(Connection& c, ReasonCode reason, const char* detail);
    void leave(Connection& c, bool publish_will);
    void close(Connection& c, std::string reason);
    void settle(Now now);

    // --- steer.cpp
    void commands_done();
    void command_saw_end(const Session& session);

    // --- session.cpp
    Session* find_session(ByteView client_id);
    Session* find_session(uint64_t id);
    static Connection* online(const Session& session);
    Session& begin_session(ByteView client_id, ByteView username, uint32_t expiry_interval);
    Session& add_session(uint64_t id, ByteView client_id, ByteView username);
    void end_session(Session& session);
    uint64_t unstored_end_of(ByteView client_id);
    void end_deliveries(Session& session);
    void go_offline(Session& session);

    // --- persist.cpp: the records of persistent sessions
    void save_session(const Session& session);
    void save_subscription(const Session& session, const mqtt::Subscription& wanted, Qos granted,
                           uint32_t identifier);
    void save_delivery(Session& session, Delivery& delivery, Routed* routed);
    void put_delivery(const Session& session, const Delivery& delivery, DeliveryState state,
                      Pending::PublishId waiting = Pending::kNone);
    void put_release(const Session& session, const Release& release);
    void end_delivery(const Session& session, const Delivery& delivery);
    void end_delivery(uint64_t session, uint64_t sequence, const StoredAs& stored);
    Durability durability_of(ByteView topic) const;
    base::WallTime wall_time(base::MonoTime at) const;
    void put(const StoreRecord& record) { pending_.add_store(Pending::kNone, record, turn_.store); }
    void wait_for_store(StoreWait wait);
    void wake_when_stored(Session& session);
    void go_on(StoreWait& wait);
    void go_on_stored();

    // --- load.cpp
    void load_session(const StoreRecord& record);
    void load_subscription(Session& session, const StoredSubscription& stored);
    void load_delivery(Session& session, const StoreRecord& record);
    void settle_loaded(Session& session);
    void keep_far(Session& session, const StoredEntry& entry, base::MonoTime expires);
    void settle_loaded_queue(Session& session, bool was_connected);

    // --- will.cpp
    MessagePtr will_message(const Connection& c, const mqtt::Will& will) const;
    void will_is_due(Session& session);
    void publish_will(const OwnedWill& will, Now now);

    // --- sql_publish.cpp
    Routed route_stored(const MessageView& message, const Origin& origin, Now now);
    void report_sql_batches();

    // --- finish.cpp
    void finish(const FinishedPublish& finished);
    void finish_delivered();
    base::MonoTime next_overdue() const;
    void refuse_overdue();
    bool refuse_overdue(const PendingOwner& owner);
    void relieve_publishers();

    // --- send.cpp: packets into outboxes
    void count_publish(Connection& c, size_t payload_bytes);
    static void count_dropped(Session& session, uint64_t& counter);
    void send(Connection& c, const mqtt::Packet& packet);
    void sent(Connection& c, size_t bytes);
    void pause(Connection& c, PauseReason reason);
    void resume(Connection& c, PauseReason reason);

    // --- memory.cpp: max_memory
    enum class Pressure : uint8_t { kNone, kCrowded, kFull };
    uint64_t memory_used() const;
    Pressure pressure() const;
    bool is_behind(const Connection& c) const;
    size_t output_limit() const;
    void count_output(Connection& c);
    void note_sent(Connection& c);
    // --- congestion.cpp: publishes from SQL wait for slow clients
    bool queue_exceeds(const Session& session, unsigned divisor) const;
    bool output_exceeds(const Session& session, unsigned divisor) const;
    bool overflows(const Session& session, const Connection& c) const;
    bool still_overflows(const Session& session, Connection& c);
    void note_queued(Session& session);
    void note_output(Session& session);
    void congest(Session& session);
    void note_taken(Session& session);
    void relieve_congestion(Session& session);
    void forget_congestion(Session& session);
    base::MonoTime next_given_up() const;
    void give_up_on_stuck();

    base::MonoTime next_relief() const;
    void relieve_memory();
    void pump_later(Connection& c);
    void pump_waiting();

    // --- timers.cpp
    void arm(Connection& c);
    static base::MonoTime due(const Connection& c);
    void look_at_connections();
    void time_out(Connection& c);

    uint64_t seed_;
    uint64_t message_bytes_ = 0;  // of all messages alive, which end before it
    uint64_t state_bytes_ = 0;    // sessions, subscriptions, wills: see state_memory.cpp
    uint64_t output_bytes_ = 0;   // unsent, without what it shares with messages
    Now now_{};                   // of the current input
    Counters counters_;
    LoadAverages load_;
    base::MonoTime started_ = base::kNever;
    bool shutting_down_ = false;

    RetainedStore retained_;                                // outlives the cursors of the sessions
    RetainedStore sys_retained_;                            // $SYS; outlives them, too
    std::vector<std::unique_ptr<Connection>> connections_;  // by slot
    std::unordered_map<std::string, std::unique_ptr<Session>, base::SeededBytesHash,
                       std::equal_to<>>
        sessions_;  // by client identifier
    std::unordered_map<uint64_t, Session*> sessions_by_id_;
    // Client identifiers of sessions whose end is not stored yet, with the batch that says it.
    std::unordered_map<std::string, uint64_t, base::SeededBytesHash, std::equal_to<>>
        unstored_ends_;
    uint64_t last_unstored_end_ = 0;
    uint64_t last_id_ = 0;  // of a session or a stored message
    SubscriptionTree subscriptions_;
    std::vector<SysValue> sys_values_;
    bool sys_heard_ = false;  // the timer of $SYS runs
    base::MonoTime sys_told_at_{};
    DeadlineHeap<Connection, &Connection::timer_place> timers_;
    DeadlineHeap<Session, &Session::timer_place> session_timers_;
    std::unordered_map<uint64_t, std::vector<Successor>> successors_;  // by id of a session
    Commands commands_;
    Fifo<uint64_t> slices_;     // sessions, by id
    uint64_t slice_batch_ = 0;  // the store has this before there is another slice
    uint64_t assigned_ids_ = 0;

    // The filters of the sinks; unique_ptr because the tree points at the subscriptions.
    std::vector<std::unique_ptr<Sink>> sinks_;
    std::vector<std::unique_ptr<Subscription>> sink_subscriptions_;

    Fifo<SqlBatch> sql_batches_;
    uint64_t first_sql_batch_ = 0;  // number of sql_batches_.front()

    Fifo<StoreWait> store_waits_;

    FarClock far_clock_;
    uint64_t far_entries_ = 0;
    std::unordered_map<uint64_t, Fetch> fetches_;  // by message_id
    uint64_t fetching_bytes_ = 0;
    Fifo<uint64_t> to_fetch_;  // sessions that wait until others have their messages
    bool missing_told_ = false;
    Moving moving_[2];  // of the logged and the unlogged log
    uint64_t move_refs_ = 0;

    // Left for the end of the input: ending a session or publishing a will in the middle of a
    // route would pull the ground from under it.
    Fifo<OwnedWill> wills_;
    Fifo<Orphan> orphans_;
    Fifo<Successor> to_admit_;
    std::vector<Pending::Ticket> delivered_;  // publishes of deliveries that ended
    std::vector<ConnectionId> doomed_;
    std::vector<ConnectionId> paused_publishers_;
    std::vector<Session*> congested_;
    Fifo<ConnectionId> paused_for_memory_;
    base::MonoTime throttled_until_{};  // then some of them may publish a message
    bool sql_may_publish_ = true;       // one batch, though memory is full
    // Could go on, if not in this turn: the transport was faster than client_buffer, or the search
    // for retained messages took long enough.
    std::vector<ConnectionId> to_pump_;
    static constexpr size_t kSearchSteps = 20000;  // in a turn, some milliseconds
    static constexpr size_t kSearchShare = 2000;   // of one session at a time
    size_t search_budget_ = kSearchSteps;

    // Scratch, reused.
    base::Input* input_ = nullptr;  // that shows what received() works on
    mqtt::Publish publish_;         // being decoded
    mqtt::Packet packet_;           // being decoded
    mqtt::Publish outgoing_;        // being encoded, from a kept message
    std::string bytes_;
    Route route_;
    std::vector<FinishedPublish> finished_;
    std::vector<Pending::PublishId> overdue_;
    std::vector<MessagePtr> expired_;
};

}  // namespace pgmqtt::broker
