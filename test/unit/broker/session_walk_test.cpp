// Clients of all versions with all kinds of sessions do random things, the store answers late,
// gives messages back late, cleans its log and forgets what it was asked for; the broker dies and
// comes back with what was stored. A model says what every client must receive: nothing lost,
// nothing twice that must come once, nothing out of order, no QoS 2 before it is stored, nothing
// left behind.
//
// PGMQTT_WALK_STEPS and PGMQTT_WALK_SEED are for long runs by hand.
#include <array>
#include <cstdio>
#include <random>

#include "broker_fixture.h"
#include "session_walk_model.h"
#include "mqtt/topic.h"

namespace pgmqtt::broker {
namespace {

class SessionWalkTest : public BrokerTest {
   protected:
    size_t pick(size_t below) { return random_() % below; }
    void walk(unsigned seed, size_t steps);
    void step();
    void act(Walker& walker);
    void connect_walker(Walker& walker, bool clean_start);
    void greet();
    void send_again(Walker& walker);
    void gone(Walker& walker);
    void forget_client(Walker& walker);
    void leave(Walker& walker);
    void pass_time();
    void crash();
    void clean_log();
    void forget_requests();
    void subscribe(Walker& walker);
    void unsubscribe(Walker& walker);
    void publish(Walker& walker);
    void send_publish(Walker& walker, Outgoing& outgoing, bool dup);
    void expect(const Outgoing& outgoing, uint64_t batch);
    void read(Walker& walker, size_t count);
    void read_publish(Walker& walker);
    void read_ack(Walker& walker);
    void flush_acks(Walker& walker, size_t count);
    void finish();

    std::mt19937 random_;
    std::array<Walker, kPeers> walkers_;
    size_t next_payload_ = 0;
    uint64_t session_batch_ = 0;  // the model does not know sessions half stored
    size_t delivered_ = 0;
    size_t expired_ = 0;
    size_t crashes_ = 0;
};

void SessionWalkTest::connect_walker(Walker& walker, bool clean_start) {
    const Version versions[] = {Version::k31, Version::k311, Version::k5};
    ConnectOptions options;
    options.version = versions[pick(3)];
    options.clean_start = clean_start;
    walker.receive_maximum = 65535;
    uint32_t expiry = clean_start ? 0 : kLongExpiry;
    if (options.version == Version::k5) {
        const uint32_t expiries[] = {0, kShortExpiry, kLongExpiry, kLongExpiry};
        expiry = expiries[pick(4)];
        options.properties.session_expiry_interval = expiry;
        if (pick(2) == 0) {
            walker.receive_maximum = 1 + pick(5);
            options.properties.receive_maximum = static_cast<uint16_t>(walker.receive_maximum);
        }
    }
    if (walker.client != nullptr) {  // take-over
        Client& old = *walker.client;
        gone(walker);
        walker.client = nullptr;
        if (clean_start) walker.session = {};
        walker.client = &dial("c" + std::to_string(&walker - walkers_.data()), options);
        ASSERT_TRUE(old.closed());
        ConnectionId id = old.id();
        clients_.remove_if([&](const Client& client) { return client.id() == id; });
    } else {
        if (clean_start) walker.session = {};
        walker.client = &dial("c" + std::to_string(&walker - walkers_.data()), options);
    }
    ModelSession& session = walker.session;
    if (!session.exists) {
        session = {};
        session.exists = true;
        session.persistent = expiry > 0;
    }
    session.expiry = expiry;
    session.expires = base::kNever;
    session_batch_ = last_batch_;
}

// Takes the CONNACKs that came, before anybody does anything else.
void SessionWalkTest::greet() {
    std::vector<Walker*> opened;
    for (Walker& walker : walkers_) {
        if (walker.client == nullptr || walker.online) continue;
        if (walker.client->packets_waiting() == 0) continue;
        ASSERT_EQ(walker.client->next<mqtt::Connack>().code, 0);
        walker.online = true;
        opened.push_back(&walker);
    }
    for (Walker* walker : opened) send_again(*walker);
}

// What was not acknowledged [MQTT-4.4.0-1].
void SessionWalkTest::send_again(Walker& walker) {
    for (Outgoing& outgoing : walker.session.outgoing) {
        if (outgoing.released) {
            auto known = walker.session.remembered.find(outgoing.packet_id);
            uint64_t batch = batch_of([&] { walker.client->pubrel(outgoing.packet_id); });
            if (known != walker.session.remembered.end()) known->second.released = batch;
        } else {
            send_publish(walker, outgoing, true);
        }
    }
}

// The connection is gone, and with it what depends on it.
void SessionWalkTest::gone(Walker& walker) {
    ModelSession& session = walker.session;
    walker.lose_connection();
    if (session.expiry == 0) {
        session = {};
    } else {
        session.expires = now_.mono + std::chrono::seconds(session.expiry);
    }
}

void SessionWalkTest::forget_client(Walker& walker) {
    ConnectionId id = walker.client->id();
    walker.client = nullptr;
    clients_.remove_if([&](const Client& client) { return client.id() == id; });
}

void SessionWalkTest::leave(Walker& walker) {
    if (walker.online && pick(2) == 0) {
        walker.client->send(mqtt::Disconnect{});
        ASSERT_TRUE(walker.client->closed());
    } else {
        walker.client->drop();
    }
    gone(walker);
    forget_client(walker);
    session_batch_ = last_batch_;
}

void SessionWalkTest::pass_time() {
    advance(std::chrono::milliseconds(pick(3000)));
    for (Walker& walker : walkers_) {
        if (walker.client == nullptr && walker.session.expires <= now_.mono) walker.session = {};
    }
    session_batch_ = last_batch_;
}

// kill -9: what is not stored is gone, also what the broker did with it.
void SessionWalkTest::crash() {
    ++crashes_;
    while (stored() < session_batch_) {
        store_some(1);
        run();
        session_batch_ = std::min(session_batch_, last_batch_);
    }
    uint64_t kept = stored();
    for (Walker& walker : walkers_) {
        ModelSession& session = walker.session;
        bool connected = walker.client != nullptr;
        walker.client = nullptr;
        walker.lose_connection();
        if (!session.persistent || (connected && session.expiry == 0)) {
            session = {};
            continue;
        }
        if (connected) session.expires = now_.mono + std::chrono::seconds(session.expiry);
        while (!session.expected.empty() && session.expected.back().batch > kept) {
            session.expected.pop_back();
        }
        for (Expected& expected : session.expected) expected.batch = 0;
        std::erase_if(session.remembered, [&](const auto& entry) {
            const Remembered& known = entry.second;
            return known.batch > kept || (known.released > 0 && known.released <= kept);
        });
        for (auto& [id, known] : session.remembered) known = {};
    }
    restart();
    session_batch_ = last_batch_;
}

// The store worker moves its log, or came back.
void SessionWalkTest::clean_log() {
    if (pick(4) == 0) return forget_requests();
    move_log(Durability::kDurable, store_.last_id() - pick(200));
    finish_moves();
}

void SessionWalkTest::forget_requests() {
    uint64_t kept = stored();
    uint64_t again = last_batch_ + 1;  // all of it in one; what the broker does next is in others
    unfetched_.clear();
    unstored_.clear();
    broker_->resend_store();
    run();
    auto now_in = [&](uint64_t& batch) {
        if (batch > kept) batch = again;
    };
    for (Walker& walker : walkers_) {
        for (Expected& expected : walker.session.expected) now_in(expected.batch);
        for (auto& [id, known] : walker.session.remembered) {
            now_in(known.batch);
            now_in(known.released);
        }
    }
    now_in(session_batch_);
}

void SessionWalkTest::subscribe(Walker& walker) {
    const char* filter = kFilters[pick(std::size(kFilters))];
    mqtt::Subscribe packet;
    packet.packet_id = 65535;
    packet.subscriptions.push_back({.filter = filter, .qos = static_cast<Qos>(pick(3))});
    walker.client->send(packet);
    walker.session.filters[filter] = packet.subscriptions[0].qos;
    session_batch_ = last_batch_;
}

void SessionWalkTest::unsubscribe(Walker& walker) {
    const char* filter = kFilters[pick(std::size(kFilters))];
    mqtt::Unsubscribe packet;
    packet.packet_id = 65535;
    packet.filters.push_back(filter);
    walker.client->send(packet);
    walker.session.filters.erase(filter);
    session_batch_ = last_batch_;
}

void SessionWalkTest::publish(Walker& walker) {
    // One more, and the broker may stop reading a client of 3.x for a while.
    if (walker.session.outgoing.size() + 1 >= kMaxInflight) return;
    Outgoing outgoing;
    outgoing.topic = kTopics[pick(std::size(kTopics))];
    outgoing.payload = std::to_string(next_payload_++);
    if (pick(100) == 0) outgoing.payload.append(5000, 'x');
    outgoing.qos = static_cast<Qos>(pick(3));
    if (outgoing.qos == Qos::k0) {
        walker.client->publish(outgoing.topic, outgoing.payload);
        return expect(outgoing, last_batch_);
    }
    if (pick(3) == 0) outgoing.expiry = 1 + pick(10);
    walker.last_packet_id = walker.last_packet_id % 60000 + 1;
    outgoing.packet_id = static_cast<uint16_t>(walker.last_packet_id);
    walker.session.outgoing.push_back(outgoing);
    send_publish(walker, walker.session.outgoing.back(), false);
}

void SessionWalkTest::send_publish(Walker& walker, Outgoing& outgoing, bool dup) {
    ModelSession& session = walker.session;
    // What comes again is a new message to the broker if it is of QoS 1 [MQTT-4.3.2-5], or of QoS 2
    // and was not stored. Its payload says so: the old one may have been delivered under the
    // identifier that the new one gets.
    bool is_known = outgoing.qos == Qos::k2 && session.remembered.contains(outgoing.packet_id);
    if (dup && !is_known) outgoing.payload += "'";
    if (walker.client->version() != Version::k5) outgoing.expiry.reset();
    uint64_t batch = batch_of([&] {
        walker.client->publish_as(outgoing.packet_id, outgoing.topic, outgoing.payload,
                                  outgoing.qos, dup, outgoing.expiry);
    });
    if (outgoing.qos == Qos::k2) {
        bool is_new =
            session.remembered.try_emplace(outgoing.packet_id, Remembered{batch, 0}).second;
        if (!is_new) return;
    }
    expect(outgoing, batch);
}

void SessionWalkTest::expect(const Outgoing& outgoing, uint64_t batch) {
    for (Walker& walker : walkers_) {
        int granted = -1;
        for (const auto& [filter, filter_qos] : walker.session.filters) {
            if (!mqtt::topic_matches(filter, outgoing.topic)) continue;
            granted = std::max(granted, static_cast<int>(filter_qos));
        }
        if (granted < 0) continue;
        Expected expected{outgoing.payload, outgoing.topic};
        expected.qos = std::min(outgoing.qos, static_cast<Qos>(granted));
        if (expected.qos == Qos::k0) {
            if (walker.online) walker.expected_qos0.push_back(expected);
            continue;
        }
        if (walker.session.persistent) expected.batch = batch;
        if (outgoing.expiry) expected.expires = now_.mono + std::chrono::seconds(*outgoing.expiry);
        walker.session.expected.push_back(expected);
    }
}

void SessionWalkTest::read_publish(Walker& walker) {
    ModelSession& session = walker.session;
    auto publish = walker.client->next<mqtt::Publish>();
    if (publish.qos == Qos::k0) {
        ASSERT_FALSE(walker.expected_qos0.empty());
        ASSERT_EQ(publish.payload, walker.expected_qos0.front().payload);
        walker.expected_qos0.pop_front();
        ++delivered_;
        return;
    }
    walker.acks.emplace_back(publish.qos, publish.packet_id);
    ASSERT_LE(walker.acks.size(), std::min<size_t>(walker.receive_maximum, kMaxInflight));
    std::string& latest = session.latest[publish.packet_id];
    if (publish.qos == Qos::k2 && session.incomplete.contains(publish.packet_id)) {
        ASSERT_TRUE(publish.dup);
        ASSERT_EQ(publish.payload, latest);
        return;
    }
    if (publish.qos == Qos::k1 && publish.dup && latest == publish.payload) return;
    expired_ += session.skip_expired(publish.payload, now_.mono);
    ASSERT_FALSE(session.expected.empty()) << publish.payload;
    const Expected& next = session.expected.front();
    ASSERT_EQ(publish.payload, next.payload);
    ASSERT_EQ(publish.topic, next.topic);
    ASSERT_EQ(publish.qos, next.qos);
    if (next.qos == Qos::k2) {
        ASSERT_LE(next.batch, stored());
    }
    session.expected.pop_front();
    latest = publish.payload;
    if (publish.qos == Qos::k2) session.incomplete.insert(publish.packet_id);
    ++delivered_;
}

// An answer to what the client published, or a PUBREL.
void SessionWalkTest::read_ack(Walker& walker) {
    ModelSession& session = walker.session;
    auto find = [&](uint16_t id) {
        return std::find_if(session.outgoing.begin(), session.outgoing.end(),
                            [&](const Outgoing& outgoing) { return outgoing.packet_id == id; });
    };
    if (walker.client->next_is<mqtt::Puback>()) {
        auto found = find(walker.client->next<mqtt::Puback>().packet_id);
        ASSERT_NE(found, session.outgoing.end());
        ASSERT_EQ(found->qos, Qos::k1);
        session.outgoing.erase(found);
    } else if (walker.client->next_is<mqtt::Pubrec>()) {
        auto found = find(walker.client->next<mqtt::Pubrec>().packet_id);
        ASSERT_NE(found, session.outgoing.end());
        if (session.persistent) {
            ASSERT_LE(session.remembered[found->packet_id].batch, stored());
        }
        found->released = true;
        session.remembered[found->packet_id].released =
            batch_of([&] { walker.client->pubrel(found->packet_id); });
    } else if (walker.client->next_is<mqtt::Pubcomp>()) {
        auto found = find(walker.client->next<mqtt::Pubcomp>().packet_id);
        ASSERT_NE(found, session.outgoing.end());
        ASSERT_TRUE(found->released);
        session.remembered.erase(found->packet_id);
        session.outgoing.erase(found);
    } else {
        uint16_t id = walker.client->next<mqtt::Pubrel>().packet_id;
        session.incomplete.erase(id);
        walker.client->pubcomp(id);
    }
}

void SessionWalkTest::read(Walker& walker, size_t count) {
    while (count-- > 0 && walker.client->packets_waiting() > 0 && !HasFatalFailure()) {
        if (walker.client->next_is<mqtt::Publish>()) {
            read_publish(walker);
            if (pick(3) > 0) flush_acks(walker, 1 + pick(4));
        } else if (walker.client->next_is<mqtt::Suback>()) {
            walker.client->next<mqtt::Suback>();
        } else if (walker.client->next_is<mqtt::Unsuback>()) {
            walker.client->next<mqtt::Unsuback>();
        } else {
            read_ack(walker);
        }
    }
}

// In order [MQTT-4.6.0-2].
void SessionWalkTest::flush_acks(Walker& walker, size_t count) {
    while (count-- > 0 && !walker.acks.empty()) {
        auto [qos, id] = walker.acks.front();
        walker.acks.pop_front();
        if (qos == Qos::k1) {
            walker.client->puback(id);
        } else {
            walker.client->pubrec(id);
        }
    }
}

void SessionWalkTest::act(Walker& walker) {
    if (walker.client == nullptr) {
        if (pick(4) == 0) connect_walker(walker, pick(5) == 0);
        return;
    }
    if (pick(150) == 0) return leave(walker);
    if (pick(200) == 0) return connect_walker(walker, pick(5) == 0);
    if (!walker.online) return;
    switch (pick(12)) {
        case 0:
            if (pick(4) == 0) subscribe(walker);
            return;
        case 1:
            if (pick(4) == 0) unsubscribe(walker);
            return;
        case 2:
        case 3:
        case 4:
            return publish(walker);
        case 5:
            return flush_acks(walker, pick(5));
        default:
            return read(walker, pick(3) == 0 ? pick(6) : 1000000);
    }
}

void SessionWalkTest::step() {
    size_t chance = pick(1000);
    if (chance < 200) {
        store_some(1 + pick(4));
        run();
    } else if (chance < 247) {
        fetch_some(1 + pick(4));
        run();
    } else if (chance < 250) {
        clean_log();
    } else if (chance < 270) {
        pass_time();
    } else if (chance == 270) {
        crash();
    } else {
        act(walkers_[pick(kPeers)]);
    }
    greet();
    stored_.clear();
    log_.clear();
    auth_requests_.clear();
}

// Everybody comes back and takes what is theirs; then nothing may be left.
void SessionWalkTest::finish() {
    auto_store_ = true;
    auto_fetch_ = true;
    store_all();
    run();
    for (int round = 0; round < 3000 && !HasFatalFailure(); ++round) {
        for (Walker& walker : walkers_) {
            if (walker.client == nullptr) connect_walker(walker, false);
            greet();
            if (!walker.online) continue;
            read(walker, 1000000);
            flush_acks(walker, 1000000);
        }
    }
    for (Walker& walker : walkers_) {
        walker.session.skip_expired("", now_.mono);
        EXPECT_TRUE(walker.session.expected.empty());  // nothing lost
        EXPECT_TRUE(walker.expected_qos0.empty());
        EXPECT_TRUE(walker.session.outgoing.empty());
        EXPECT_TRUE(walker.session.incomplete.empty());
    }
    EXPECT_EQ(counters().queued + counters().queued_bytes + counters().inflight, 0u);
    EXPECT_EQ(counters().pending, 0u);
    EXPECT_EQ(store_.messages() + store_.deliveries() + store_.received(), 0u);
    for (size_t i = 0; i < kPeers; ++i) {
        broker_->delete_session("c" + std::to_string(i), now_);
        run();
    }
    EXPECT_TRUE(store_.empty());
    EXPECT_EQ(counters().clients + counters().subscriptions, 0u);
}

void SessionWalkTest::walk(unsigned seed, size_t steps) {
    random_.seed(seed);
    config_.max_inflight = kMaxInflight;
    config_.client_buffer = 1 << 20;
    config_.max_session_expiry = kLongExpiry;
    auto_fetch_ = false;
    start();
    for (size_t i = 0; i < steps; ++i) {
        step();
        if (HasFatalFailure() || HasNonfatalFailure()) {
            FAIL() << "seed " << seed << ", step " << i;
        }
    }
    finish();
    EXPECT_GT(delivered_, steps / 10);
    EXPECT_GT(expired_, steps / 1000);
    std::printf("%zu steps, %zu deliveries, %zu crashes\n", steps, delivered_, crashes_);
}

TEST_F(SessionWalkTest, NothingIsLostDoubledMisorderedOrEarly) {
    walk(static_cast<unsigned>(setting("PGMQTT_WALK_SEED", 1)),
         setting("PGMQTT_WALK_STEPS", 60000));
}

}  // namespace
}  // namespace pgmqtt::broker
