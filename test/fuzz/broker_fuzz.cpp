// The whole core of the broker: several clients send what the input says, workers answer or do not,
// time goes by. The sanitizers watch, and after every step what must always hold is looked at.
//
// An input is a list of steps: an operation, a client, and what the operation reads. Packets are
// either raw bytes of the input or made from a few of them, so that the fuzzer gets deep without
// having to find out how to write a CONNECT.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "broker/broker.h"
#include "mqtt/codec.h"

namespace {

using namespace pgmqtt;
using base::ByteView;

#define CHECK(condition) \
    if (!(condition)) std::abort()

class Input {
   public:
    Input(const uint8_t* data, size_t size) : bytes_(reinterpret_cast<const char*>(data), size) {}
    bool empty() const { return bytes_.empty(); }
    uint8_t byte() {
        if (bytes_.empty()) return 0;
        auto value = static_cast<uint8_t>(bytes_.front());
        bytes_.remove_prefix(1);
        return value;
    }
    ByteView take(size_t size) {
        ByteView taken = bytes_.substr(0, size);
        bytes_.remove_prefix(taken.size());
        return taken;
    }

   private:
    ByteView bytes_;
};

struct Peer {
    base::ConnectionId id;
    bool connected = false;
    bool stalled = false;
    mqtt::Version version = mqtt::Version::k5;
    std::string unsent;  // by the client
    std::string output;  // of the broker, up to what is not a packet yet
};

constexpr size_t kPeers = 5;
const char* const kTopics[] = {"a", "a/b", "a/b/c", "long/enough/for/an/alias", "$SYS/x", "b", "/"};
const char* const kFilters[] = {"a",
                                "a/+",
                                "#",
                                "+/b",
                                "$share/g/a/#",
                                "$share/g/#",
                                "$share/h/a",
                                "a/#",
                                "$SYS/#",
                                "long/enough/for/an/alias",
                                "$share/g/long/#"};

class Fuzzed {
   public:
    Fuzzed() : broker_(config(), 42) {
        for (uint32_t i = 0; i < kPeers; ++i) peers_[i].id = {i, 0};
        broker_.set_durability_rules({{"a/#", broker::Durability::kUnlogged}});
        broker_.set_sinks({{1, "a/b", mqtt::Qos::k1}, {2, "a/#", mqtt::Qos::k0}});
    }

    void step(Input& input) {
        uint8_t operation = input.byte();
        Peer& peer = peers_[(operation >> 4) % kPeers];
        switch (operation & 15) {
            case 0:
                connect(peer, input);
                break;
            case 1:
                send(peer, input.take(input.byte()));
                break;
            case 2:
                subscribe(peer, input);
                break;
            case 3:
            case 4:
            case 5:
                publish(peer, input);
                break;
            case 6:
                acknowledge(peer, input);
                break;
            case 7:
                unsubscribe(peer, input);
                break;
            case 8:
                drop(peer);
                break;
            case 9:
                peer.stalled = !peer.stalled;
                drain(peer);
                break;
            case 10:
                broker_.store_done(input.byte(), now_);
                break;
            case 11:
                broker_.sink_done({input.byte(), mqtt::ReasonCode(input.byte()), "text"}, now_);
                break;
            case 12:
                pass_time(std::chrono::milliseconds(input.byte() * 100));
                break;
            case 13:
                publish_from_sql(input);
                break;
            case 14:
                work(input);
                break;
            case 15:
                disconnect(peer, input);
                break;
        }
        run();
        check();
    }

    void finish() {
        for (Peer& peer : peers_) drop(peer);
        run();
        check();
        CHECK(broker_.counters().clients == 0);
    }

   private:
    static broker::Config config() {
        broker::Config config;
        config.max_packet_size = 20000;
        config.max_inflight = 5;
        config.max_queued_messages = 8;
        config.client_buffer = 3000;
        config.max_subscriptions = 6;
        config.max_retained = 4;
        config.topic_alias_maximum = 3;
        config.max_pending_bytes = 5000;
        config.max_memory = 60000;
        return config;
    }

    // What workers say unasked, or late.
    void work(Input& input) {
        uint8_t bits = input.byte();
        switch (bits & 3) {
            case 0:
                return broker_.resend_store();
            case 1:
                return broker_.resend_sink();
            case 2:
                return give_back(input);
            default:
                broker::MoveRecord record;
                if ((bits & 4) != 0) record.durability = broker::Durability::kUnlogged;
                record.up_to = (bits & 8) != 0 ? UINT64_MAX >> 1 : bits >> 4;
                broker_.move(record, now_);
        }
    }

    // Some of what the broker asked for, or something else.
    void give_back(Input& input) {
        broker::BatchWriter writer(broker::BatchKind::kFetched);
        for (size_t count = 1 + input.byte() % 8; count > 0; --count) {
            uint8_t bits = input.byte();
            broker::FetchedRecord record;
            record.message_id = bits;
            if (!asked_.empty() && (bits & 7) != 0) {
                record.message_id = asked_.front();
                asked_.pop_front();
            }
            record.found = (bits & 8) == 0;
            record.message.topic = kTopics[(bits >> 4) % 4];
            record.message.payload = "fetched";
            record.message.qos = mqtt::Qos::k1;
            writer.add(record);
        }
        broker::BatchReader reader(writer.finish(1));
        broker_.fetched(reader, now_);
    }

    void connect(Peer& peer, Input& input) {
        drop(peer);
        ++peer.id.generation;
        peer.connected = true;
        peer.stalled = false;
        broker_.accepted(peer.id, {}, now_);
        uint8_t bits = input.byte();
        if (bits == 0xFF) return;  // what follows is raw
        constexpr mqtt::Version kVersions[] = {mqtt::Version::k5, mqtt::Version::k311,
                                               mqtt::Version::k5, mqtt::Version::k31};
        mqtt::Connect connect;
        connect.version = peer.version = kVersions[bits & 3];
        connect.clean_start = (bits & 4) != 0;
        connect.keep_alive = (bits & 8) != 0 ? 2 : 0;
        std::string client_id(1, static_cast<char>('A' + (bits >> 4) % 3));
        connect.client_id = client_id;
        uint8_t more = input.byte();
        if ((more & 1) != 0) {
            connect.will.emplace();
            connect.will->topic = kTopics[(more >> 1) % 4];
            connect.will->payload = "will";
            connect.will->qos = mqtt::Qos(std::min(more >> 6, 2));
            connect.will->retain = (more & 32) != 0;
        }
        if (peer.version == mqtt::Version::k5) {
            if ((more & 2) != 0) connect.properties.receive_maximum = 1 + more % 3;
            if ((more & 4) != 0) connect.properties.topic_alias_maximum = 2;
            if ((more & 8) != 0) connect.properties.session_expiry_interval = more;
            if ((more & 16) != 0) connect.properties.maximum_packet_size = 20 + more;
        }
        send(peer, connect);
    }

    void subscribe(Peer& peer, Input& input) {
        mqtt::Subscribe subscribe;
        subscribe.packet_id = 1;
        mqtt::Subscription wanted;
        uint8_t bits = input.byte();
        wanted.filter = kFilters[input.byte() % std::size(kFilters)];
        wanted.qos = mqtt::Qos(std::min(bits & 3, 2));
        if (peer.version == mqtt::Version::k5) {
            wanted.no_local = (bits & 4) != 0 && !wanted.filter.starts_with("$share");
            wanted.retain_as_published = (bits & 8) != 0;
            wanted.retain_handling = static_cast<uint8_t>(std::min(bits >> 6, 2));
            if ((bits & 32) != 0) subscribe.properties.subscription_identifiers.push_back(5);
        }
        subscribe.subscriptions.push_back(wanted);
        send(peer, subscribe);
    }

    void unsubscribe(Peer& peer, Input& input) {
        mqtt::Unsubscribe unsubscribe;
        unsubscribe.packet_id = 2;
        unsubscribe.filters.push_back(kFilters[input.byte() % std::size(kFilters)]);
        send(peer, unsubscribe);
    }

    void publish(Peer& peer, Input& input) {
        mqtt::Publish publish;
        uint8_t bits = input.byte();
        publish.topic = kTopics[input.byte() % std::size(kTopics)];
        publish.qos = mqtt::Qos(std::min(bits & 3, 2));
        publish.retain = (bits & 4) != 0;
        if (publish.qos != mqtt::Qos::k0) publish.packet_id = 1 + input.byte() % 8;
        constexpr size_t kSizes[] = {0, 1, 50, 3000};
        std::string payload(kSizes[bits >> 4 & 3], 'x');
        publish.payload = payload;
        if (peer.version == mqtt::Version::k5) {
            if ((bits & 8) != 0) publish.properties.message_expiry_interval = 1;
            if ((bits & 64) != 0) publish.properties.topic_alias = 1 + bits % 3;
            if ((bits & 192) == 192) publish.topic = {};
            if ((bits & 192) == 128) publish.properties.user_properties.emplace_back("k", "v");
        }
        send(peer, publish);
    }

    void acknowledge(Peer& peer, Input& input) {
        uint8_t bits = input.byte();
        uint16_t id = 1 + bits / 4 % 16;
        switch (bits & 3) {
            case 0: {
                mqtt::Puback packet;
                packet.packet_id = id;
                return send(peer, packet);
            }
            case 1: {
                mqtt::Pubrec packet;
                packet.packet_id = id;
                return send(peer, packet);
            }
            case 2: {
                mqtt::Pubrel packet;
                packet.packet_id = id;
                return send(peer, packet);
            }
            default: {
                mqtt::Pubcomp packet;
                packet.packet_id = id;
                return send(peer, packet);
            }
        }
    }

    void disconnect(Peer& peer, Input& input) {
        mqtt::Disconnect packet;
        uint8_t bits = input.byte();
        if (peer.version == mqtt::Version::k5) {
            if ((bits & 1) != 0) packet.reason = mqtt::ReasonCode::kDisconnectWithWill;
            if ((bits & 2) != 0) packet.properties.session_expiry_interval = bits;
        }
        send(peer, packet);
    }

    void publish_from_sql(Input& input) {
        broker::BatchWriter writer(broker::BatchKind::kPublish);
        for (size_t count = input.byte() % 4; count > 0; --count) {
            uint8_t bits = input.byte();
            broker::MessageView message;
            message.topic = kTopics[bits % 4];
            message.payload = bits >= 128 ? "payload" : "";
            message.qos = mqtt::Qos(bits >> 2 & 1);
            message.retain = (bits & 8) != 0;
            writer.add(broker::PublishRecord{message});
        }
        broker::BatchReader reader(writer.finish(++sql_batches_));
        broker_.publish(broker::PublishSource::kCdc, sql_batches_, reader, now_);
    }

    void send(Peer& peer, const mqtt::Packet& packet) {
        std::string bytes;
        mqtt::encode(packet, peer.version, bytes);
        send(peer, ByteView(bytes));
    }

    void send(Peer& peer, ByteView bytes) {
        constexpr size_t kMostUnsent = 100000;
        if (!peer.connected || peer.unsent.size() > kMostUnsent) return;
        peer.unsent.append(bytes);
        offer(peer);
    }

    void offer(Peer& peer) {
        if (!peer.connected || broker_.paused(peer.id)) return;
        // A copy of exactly this size: the sanitizer sees every read past the end.
        std::vector<char> bytes(peer.unsent.begin(), peer.unsent.end());
        size_t consumed = broker_.received(peer.id, {bytes.data(), bytes.size()}, now_);
        CHECK(consumed <= bytes.size());
        peer.unsent.erase(0, consumed);
    }

    void drop(Peer& peer) {
        if (!peer.connected) return;
        broker_.disconnected(peer.id, now_);
        forget(peer);
    }

    static void forget(Peer& peer) {
        peer.connected = false;
        peer.unsent.clear();
        peer.output.clear();
    }

    void pass_time(std::chrono::milliseconds time) {
        now_.mono += time;
        now_.wall += time;
        broker_.tick(now_);
    }

    void drain(Peer& peer) {
        base::Outbox* outbox = broker_.outbox(peer.id);
        if (outbox == nullptr || peer.stalled || outbox->empty()) return;
        iovec vectors[3];
        size_t count = outbox->gather(vectors, 3);
        size_t size = 0;
        for (size_t i = 0; i < count; ++i) {
            peer.output.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
            size += vectors[i].iov_len;
        }
        outbox->consume(size);
        decode_output(peer);
        broker_.drained(peer.id, now_);
    }

    // Everything the broker says is a valid packet of the connection's version.
    void decode_output(Peer& peer) {
        while (true) {
            mqtt::Frame frame;
            auto state = mqtt::next_frame(peer.output, mqtt::kMaxPacketSize, frame);
            CHECK(state.ok());
            if (*state == mqtt::FrameState::kIncomplete) return;
            // Who never said a version hears of it in that of the broker's choice.
            constexpr unsigned kConnack = 2;
            if (frame.first_byte >> 4 != kConnack) {
                mqtt::Packet packet;
                CHECK(mqtt::decode(frame, peer.version, mqtt::Sender::kServer, packet).ok() ||
                      is_failed_suback_of_31(peer, frame));
            }
            peer.output.erase(0, frame.size);
        }
    }

    // 3.1 has no code for a refusal; it gets that of 3.1.1.
    static bool is_failed_suback_of_31(const Peer& peer, const mqtt::Frame& frame) {
        constexpr unsigned kSuback = 9;
        return peer.version == mqtt::Version::k31 && frame.first_byte >> 4 == kSuback;
    }

    // Acts on turns as the loop would, until there is nothing left to do.
    void run() {
        for (int turns = 0;; ++turns) {
            CHECK(turns < 10000);
            if (broker_.next_timer() <= now_.mono) broker_.tick(now_);
            broker::Turn& turn = broker_.turn();
            auto dirty = turn.dirty;
            auto close = turn.close;
            auto resumed = turn.resumed;
            auto authenticate = turn.authenticate;
            keep_requests(turn);
            for (base::ConnectionId id : dirty) drain(peers_[id.slot]);
            broker_.end_turn();
            for (const auto& request : close) {
                Peer& peer = peers_[request.connection.slot];
                broker_.disconnected(request.connection, now_);
                if (peer.connected && peer.id == request.connection) forget(peer);
            }
            for (const auto& request : authenticate) {
                broker_.authenticated(request.connection, {}, now_);
            }
            for (base::ConnectionId id : resumed) offer(peers_[id.slot]);
            for (Peer& peer : peers_) drain(peer);
            if (dirty.empty() && close.empty() && resumed.empty() && authenticate.empty() &&
                broker_.next_timer() > now_.mono) {
                return;
            }
        }
    }

    void keep_requests(broker::Turn& turn) {
        constexpr size_t kMost = 1000;
        if (turn.fetch.empty()) return;
        broker::BatchReader reader(turn.fetch.finish(broker_.fetch_batch()));
        broker::FetchRecord record;
        while (reader.next(record)) asked_.push_back(record.message_id);
        CHECK(reader.ok());
        while (asked_.size() > kMost) asked_.pop_front();
    }

    void check() {
        const broker::Counters& counters = broker_.counters();
        constexpr uint64_t kAbsurd = 1u << 30;  // a gauge below zero is a huge number
#define PGMQTT_CHECK_GAUGE(name) CHECK(counters.name < kAbsurd);
        PGMQTT_BROKER_GAUGES(PGMQTT_CHECK_GAUGE)
#undef PGMQTT_CHECK_GAUGE
        CHECK(counters.clients <= kPeers);
        CHECK(counters.retained <= 4);
        for (Peer& peer : peers_) {
            base::Outbox* outbox = broker_.outbox(peer.id);
            // client_buffer twice, the largest packet and what one input may add.
            if (outbox != nullptr) CHECK(outbox->size() < 200000);
        }
    }

    broker::Broker broker_;
    base::Now now_{base::MonoTime(std::chrono::hours(1)),
                   base::WallTime(std::chrono::hours(24 * 365 * 50))};
    std::array<Peer, kPeers> peers_;
    std::deque<uint64_t> asked_;
    uint64_t sql_batches_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    Fuzzed fuzzed;
    while (!input.empty()) fuzzed.step(input);
    fuzzed.finish();
    return 0;
}
