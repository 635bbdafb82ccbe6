// A broker with a fake clock and clients that are two buffers: bytes go in, packets come out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "broker/batch.h"
#include "broker/broker.h"
#include "fake_store.h"
#include "mqtt/codec.h"

namespace pgmqtt::broker {

using namespace std::chrono_literals;
using mqtt::Qos;
using mqtt::ReasonCode;
using mqtt::Version;

class BrokerTest;

// A packet with the bytes its views point into.
struct Received {
    std::shared_ptr<const std::string> bytes;
    mqtt::Packet packet;
};

class Client {
   public:
    Client(BrokerTest& test, ConnectionId id, Version version)
        : test_(test), id_(id), version_(version) {}

    ConnectionId id() const { return id_; }
    Version version() const { return version_; }
    bool closed() const { return closed_; }
    const std::string& close_reason() const { return close_reason_; }

    void send(const mqtt::Packet& packet);
    void send_bytes(ByteView bytes);
    // The transport breaks without a DISCONNECT.
    void drop();
    // While stalled the client reads nothing and its outbox grows.
    void stall(bool stalled);
    size_t packets_waiting() const { return inbox_.size(); }
    size_t bytes_not_consumed() const { return unsent_.size(); }

    // The next packet, which must be of this type.
    template <class T>
    T next() {
        if (inbox_.empty()) {
            ADD_FAILURE() << "no packet for the client";
            return T{};
        }
        constexpr size_t kKept = 64;
        if (kept_.size() == kKept) kept_.pop_front();
        kept_.push_back(std::move(inbox_.front()));
        inbox_.pop_front();
        T* packet = std::get_if<T>(&kept_.back().packet);
        if (packet == nullptr) {
            ADD_FAILURE() << "packet of another type: index " << kept_.back().packet.index();
            return T{};
        }
        return *packet;
    }

    template <class T>
    bool next_is() const {
        return !inbox_.empty() && std::holds_alternative<T>(inbox_.front().packet);
    }

    // Payloads of all PUBLISHes that came, which must be all that came; acknowledges QoS 1 and 2.
    std::vector<std::string> payloads();
    bool nothing() const { return inbox_.empty(); }
    // The size of the packet of which it sent the beginning.
    size_t expected() const { return expected_; }

    // Requests with their answers.
    uint8_t subscribe(ByteView filter, Qos qos = Qos::k0, mqtt::Subscription options = {},
                      uint32_t identifier = 0);
    uint8_t unsubscribe(ByteView filter);
    void publish(ByteView topic, ByteView payload, Qos qos = Qos::k0, bool retain = false,
                 const mqtt::Properties& properties = {});
    void publish_as(uint16_t packet_id, ByteView topic, ByteView payload, Qos qos, bool dup = false,
                    std::optional<uint32_t> expiry = {});
    void puback(uint16_t packet_id);
    void pubrec(uint16_t packet_id, ReasonCode reason = ReasonCode::kSuccess);
    void pubrel(uint16_t packet_id);
    void pubcomp(uint16_t packet_id);
    // All of QoS 2 from here to there.
    void publish_exactly_once(ByteView topic, ByteView payload);
    // Says PUBREC for the PUBLISH, takes the PUBREL, says PUBCOMP.
    void complete(uint16_t packet_id);

   private:
    friend class BrokerTest;
    void offer();
    bool take_some();
    void collect();

    BrokerTest& test_;
    ConnectionId id_;
    Version version_;
    bool closed_ = false;
    bool stalled_ = false;
    std::string close_reason_;
    std::string unsent_;
    size_t expected_ = 0;
    std::string input_;
    std::deque<Received> inbox_;
    std::deque<Received> kept_;  // views into the last ones are still valid
    uint16_t next_packet_id() {
        last_packet_id_ = last_packet_id_ == 65535 ? 1 : static_cast<uint16_t>(last_packet_id_ + 1);
        return last_packet_id_;
    }
    uint16_t last_packet_id_ = 0;
};

struct ConnectOptions {
    Version version = Version::k5;
    bool clean_start = true;
    uint16_t keep_alive = 0;
    std::optional<mqtt::Will> will;
    mqtt::Properties properties;
};

class BrokerTest : public ::testing::Test, public base::Output {
   protected:
    friend class Client;

    BrokerTest() { start(); }

    // Anew, with what config_ says now.
    void start() {
        clients_.clear();
        unstored_.clear();
        unfetched_.clear();
        last_batch_ = 0;
        stored_.clear();
        broker_ = std::make_unique<Broker>(config_, 42, this);
    }

    // As after kill -9: the store knows what it was told and wrote, nobody else anything.
    void restart(std::chrono::seconds down = 0s) {
        start();
        now_.mono += down;
        now_.wall += down;
        store_.load_into(*broker_, now_);
        run();
    }

    // The batch that says what a packet changed: the next one. Behind it may be others, with what
    // the broker did besides.
    template <class Send>
    uint64_t batch_of(Send send) {
        uint64_t next = last_batch_ + 1;
        send();
        return std::min(next, last_batch_);
    }

    Client& accept(Version version = Version::k5) {
        ConnectionId id{next_slot_++, ++generation_};
        Client& client = clients_.emplace_back(*this, id, version);
        Peer peer;
        peer.address = "192.0.2.1";
        peer.port = static_cast<uint16_t>(1000 + id.slot);
        broker_->accepted(id, peer, now_);
        run();
        return client;
    }

    static mqtt::Connect connect_packet(ByteView client_id, const ConnectOptions& options) {
        mqtt::Connect connect;
        connect.version = options.version;
        connect.clean_start = options.clean_start;
        connect.keep_alive = options.keep_alive;
        connect.client_id = client_id;
        connect.will = options.will;
        connect.properties = options.properties;
        return connect;
    }

    // Sends CONNECT; the CONNACK is still to be read.
    Client& dial(ByteView client_id, const ConnectOptions& options = {}) {
        Client& client = accept(options.version);
        client.send(connect_packet(client_id, options));
        return client;
    }

    Client& connect(ByteView client_id, const ConnectOptions& options = {}) {
        Client& client = dial(client_id, options);
        auto connack = client.next<mqtt::Connack>();
        EXPECT_EQ(connack.code, 0);
        EXPECT_FALSE(connack.session_present);
        return client;
    }
    Client& connect(ByteView client_id, Version version) {
        ConnectOptions options;
        options.version = version;
        return connect(client_id, options);
    }

    // Acts on the turn as the workers would, until there is nothing left to do.
    void run() {
        bool again = true;
        while (again) {
            Turn& turn = broker_->turn();
            keep_batches(turn);
            std::vector<ConnectionId> dirty = turn.dirty;
            std::vector<CloseRequest> close = turn.close;
            std::vector<ConnectionId> resumed = turn.resumed;
            std::vector<AuthRequest> authenticate = turn.authenticate;
            broker_->end_turn();
            again = !dirty.empty() || !close.empty() || !resumed.empty() || !authenticate.empty();
            if (auto_store_) again |= store_some(SIZE_MAX);
            if (auto_fetch_) again |= fetch_some(SIZE_MAX);
            for (ConnectionId id : dirty) client(id).collect();
            for (const CloseRequest& request : close) finish_close(request);
            for (const AuthRequest& request : authenticate) {
                auth_requests_.push_back(request);
                if (auto_auth_) {
                    broker_->authenticated(request.connection, verdict_, now_);
                }
            }
            for (ConnectionId id : resumed) client(id).offer();
        }
    }

    // The store worker writes so many batches and says so. False: there was nothing to write.
    bool store_some(size_t count) {
        bool any = false;
        while (count-- > 0 && !unstored_.empty()) {
            auto [number, bytes] = std::move(unstored_.front());
            unstored_.pop_front();
            store_.apply(bytes);
            broker_->store_done(number, now_);
            any = true;
        }
        return any;
    }
    void store_all() {
        while (store_some(SIZE_MAX)) run();
    }

    // The last batch that it wrote.
    uint64_t stored() const {
        return unstored_.empty() ? last_batch_ : unstored_.front().first - 1;
    }

    // The store worker answers so many requests in one batch. What was sent before is stored
    // before. False: it was asked for nothing, or has not come so far.
    bool fetch_some(size_t count) {
        BatchWriter writer(BatchKind::kFetched);
        uint64_t number = 0;
        while (writer.count() < count && !unfetched_.empty() &&
               unfetched_.front().behind <= stored()) {
            Wanted wanted = unfetched_.front();
            if (number != 0 && number != wanted.number) break;
            number = wanted.number;
            unfetched_.pop_front();
            writer.add(store_.fetch(wanted.record));
        }
        if (writer.empty()) return false;
        BatchReader reader(writer.finish(number));
        broker_->fetched(reader, now_);
        return true;
    }

    // It wants to clean its log up to this id, or up to the last that it knows.
    void move_log(Durability log = Durability::kDurable, uint64_t up_to = UINT64_MAX) {
        broker_->move({log, std::min(up_to, store_.last_id())}, now_);
        run();
    }
    // Everything that this takes in turns.
    void finish_moves() {
        while (broker_->next_timer() <= now_.mono) {
            broker_->tick(now_);
            run();
        }
    }

    // A connection to a session that is there.
    Client& resume(ByteView client_id, const ConnectOptions& options) {
        Client& client = dial(client_id, options);
        store_all();
        auto connack = client.next<mqtt::Connack>();
        EXPECT_EQ(connack.code, 0);
        EXPECT_EQ(connack.session_present, options.version != Version::k31);
        return client;
    }

    void advance(std::chrono::milliseconds time) {
        now_.mono += time;
        now_.wall += time;
        broker_->tick(now_);
        run();
    }

    void store_done(uint64_t batch) {
        broker_->store_done(batch, now_);
        run();
    }
    void sink_done(uint64_t token, ReasonCode reason = ReasonCode::kSuccess, ByteView text = {}) {
        broker_->sink_done({token, reason, text}, now_);
        run();
    }
    void publish_from_sql(PublishSource source, uint64_t number,
                          const std::vector<MessageView>& messages) {
        BatchWriter writer(BatchKind::kPublish);
        for (const MessageView& message : messages) writer.add(PublishRecord{message});
        BatchReader reader(writer.finish(number));
        broker_->publish(source, number, reader, now_);
        run();
    }

    struct StoredRecord {
        StoreKind kind;
        std::string topic;
        std::string payload;
    };
    struct SunkRecord {
        uint64_t token;
        std::vector<uint32_t> sinks;
        std::string topic;
        std::string payload;
        Qos qos;
        bool retain;
        std::string client_id;
    };

    const Counters& counters() { return broker_->counters(); }

    Client& client(ConnectionId id) {
        for (Client& known : clients_) {
            if (known.id() == id) return known;
        }
        throw std::logic_error("unknown connection in the turn");
    }

    void keep_batches(Turn& turn) {
        for (uint64_t number : turn.publishes_done) publishes_done_.push_back(number);
        for (uint64_t number : turn.outbox_done) outbox_done_.push_back(number);
        for (uint64_t number : turn.commands_done) commands_done_.push_back(number);
        for (const LogLine& line : turn.log) log_.push_back(line.text);
        if (!turn.store.empty()) {
            uint64_t number = broker_->store_batch();
            std::string bytes(turn.store.finish(number));
            unstored_.emplace_back(number, bytes);
            last_batch_ = number;
            BatchReader reader(bytes);
            StoreRecord record;
            while (reader.next(record)) {
                stored_[number].push_back({record.kind, std::string(record.message.topic),
                                           std::string(record.message.payload)});
            }
            EXPECT_TRUE(reader.ok());
            EXPECT_EQ(reader.count(), stored_[number].size());
        }
        if (!turn.fetch.empty()) {
            uint64_t number = broker_->fetch_batch();
            std::string bytes(turn.fetch.finish(number));
            BatchReader reader(bytes);
            FetchRecord record;
            while (reader.next(record)) unfetched_.push_back({number, last_batch_, record});
            EXPECT_TRUE(reader.ok());
        }
        if (!turn.sink.empty()) {
            std::string bytes(turn.sink.finish(broker_->sink_batch()));
            BatchReader reader(bytes);
            SinkRecord record;
            while (reader.next(record)) {
                sunk_.push_back({record.token, record.sink_ids, std::string(record.message.topic),
                                 std::string(record.message.payload), record.message.qos,
                                 record.message.retain, std::string(record.client_id)});
            }
            EXPECT_TRUE(reader.ok());
        }
    }

    void finish_close(const CloseRequest& request) {
        Client& gone = client(request.connection);
        gone.stalled_ = false;
        gone.collect();
        gone.closed_ = true;
        gone.close_reason_ = request.reason;
        broker_->disconnected(request.connection, now_);
    }

    // What the store was asked for, behind which of its batches.
    struct Wanted {
        uint64_t number = 0;
        uint64_t behind = 0;
        FetchRecord record;
    };

    // base::Output
    void flush(ConnectionId id) override;

    Config config_;
    size_t flushes_ = 0;
    std::unique_ptr<Broker> broker_;
    Now now_{base::MonoTime(1h), base::WallTime(std::chrono::hours(24 * 365 * 50))};
    std::list<Client> clients_;
    uint32_t next_slot_ = 0;
    uint32_t generation_ = 0;
    bool auto_auth_ = true;
    bool auto_store_ = false;  // what the broker says is stored at once
    bool auto_fetch_ = true;   // what it is asked for it answers once it has stored so far
    FakeStore store_;
    std::deque<Wanted> unfetched_;
    std::deque<std::pair<uint64_t, std::string>> unstored_;
    uint64_t last_batch_ = 0;
    AuthVerdict verdict_;
    std::vector<AuthRequest> auth_requests_;
    std::map<uint64_t, std::vector<StoredRecord>> stored_;
    std::vector<SunkRecord> sunk_;
    std::vector<uint64_t> publishes_done_;
    std::vector<uint64_t> outbox_done_;
    std::vector<uint64_t> commands_done_;
    std::vector<std::string> log_;
};
}  // namespace pgmqtt::broker

#include "client_actions.h"
