// What the core costs for a message, without network and without database: bytes of clients in,
// bytes for clients out. Each iteration is one turn in which every publisher sends a burst.
//
// The loop around it adds system calls; loadtest/ measures both together.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "broker/broker.h"
#include "mqtt/codec.h"

namespace pgmqtt::broker {
namespace {

constexpr size_t kBurst = 100;
constexpr size_t kPayload = 64;

class Bench {
   public:
    explicit Bench(size_t connections) : broker_(config(), 42) {
        for (uint32_t i = 0; i < connections; ++i) connect(i);
    }

    void subscribe(uint32_t slot, const std::string& filter, mqtt::Qos qos) {
        mqtt::Subscribe packet;
        packet.packet_id = 1;
        packet.subscriptions.push_back({.filter = filter, .qos = qos});
        send(slot, packet);
    }

    void send(uint32_t slot, const mqtt::Packet& packet) {
        std::string bytes;
        mqtt::encode(packet, mqtt::Version::k311, bytes);
        receive(slot, bytes);
        end_turn();
    }

    void receive(uint32_t slot, const std::string& bytes) {
        if (broker_.received({slot, 0}, bytes, now_) != bytes.size()) std::abort();
    }

    // Answers every PUBLISH, PUBREC and PUBREL in what the clients got, until nobody says more.
    // Returns the number of PUBLISHes.
    size_t answer_all() {
        size_t publishes = 0;
        for (;;) {
            Turn& turn = broker_.turn();
            if (turn.dirty.empty()) return publishes;
            std::vector<base::ConnectionId> dirty = turn.dirty;
            for (base::ConnectionId id : dirty) publishes += take_output(id);
            broker_.end_turn();
            for (base::ConnectionId id : dirty) {
                std::string& answer = answers_[id.slot];
                if (!answer.empty()) receive(id.slot, answer);
                answer.clear();
            }
        }
    }

    void end_turn() {
        for (base::ConnectionId id : broker_.turn().dirty) {
            broker_.outbox(id)->consume(broker_.outbox(id)->size());
        }
        broker_.end_turn();
    }

   private:
    static Config config() {
        Config config;
        config.max_inflight = 1000;
        return config;
    }

    void connect(uint32_t slot) {
        answers_.resize(slot + 1);
        broker_.accepted({slot, 0}, {.address = "127.0.0.1", .port = 1, .loopback = true}, now_);
        mqtt::Connect connect;
        std::string client_id = "client" + std::to_string(slot);
        connect.version = mqtt::Version::k311;
        connect.client_id = client_id;
        connect.clean_start = true;
        std::string bytes;
        mqtt::encode(connect, mqtt::Version::k311, bytes);
        receive(slot, bytes);
        broker_.end_turn();
        broker_.authenticated({slot, 0}, {}, now_);
        end_turn();
    }

    size_t take_output(base::ConnectionId id) {
        base::Outbox& outbox = *broker_.outbox(id);
        std::array<iovec, 64> vectors;
        size_t publishes = 0;
        while (size_t count = outbox.gather(vectors.data(), vectors.size())) {
            size_t size = 0;
            for (size_t i = 0; i < count; ++i) {
                base::ByteView bytes(static_cast<char*>(vectors[i].iov_base), vectors[i].iov_len);
                size += bytes.size();
                publishes += read_packets(bytes, answers_[id.slot]);
            }
            outbox.consume(size);
        }
        return publishes;
    }

    // Blocks end between packets: payloads are too short to be shared.
    static size_t read_packets(base::ByteView bytes, std::string& answer) {
        size_t publishes = 0;
        while (!bytes.empty()) {
            auto first = static_cast<uint8_t>(bytes[0]);
            size_t size = 2u + static_cast<uint8_t>(bytes[1]);
            if (first >> 4 == 3) {
                ++publishes;
                size_t topic = static_cast<uint8_t>(bytes[3]);
                unsigned qos = first >> 1 & 3U;
                if (qos > 0) {
                    answer += {static_cast<char>(qos == 1 ? 0x40 : 0x50), 2};
                    answer += bytes.substr(4 + topic, 2);
                }
            } else if (first >> 4 == 5) {
                answer += {0x62, 2};
                answer += bytes.substr(2, 2);
            } else if (first >> 4 == 6) {
                answer += {0x70, 2};
                answer += bytes.substr(2, 2);
            }
            bytes.remove_prefix(size);
        }
        return publishes;
    }

    Broker broker_;
    Now now_ = base::read_clocks();
    std::vector<std::string> answers_;
};

std::string burst(const std::string& topic, mqtt::Qos qos) {
    std::string payload(kPayload, 'x');
    std::string bytes;
    for (size_t i = 1; i <= kBurst; ++i) {
        mqtt::Publish publish;
        publish.topic = topic;
        publish.payload = payload;
        publish.qos = qos;
        publish.packet_id = qos == mqtt::Qos::k0 ? uint16_t{0} : static_cast<uint16_t>(i);
        mqtt::encode(publish, mqtt::Version::k311, bytes);
    }
    return bytes;
}

// n publishers, each to a topic of its own that one subscriber has.
void BM_Pairs(benchmark::State& state) {
    auto pairs = static_cast<uint32_t>(state.range(0));
    auto qos = static_cast<mqtt::Qos>(state.range(1));
    Bench bench(2 * pairs);
    std::vector<std::string> bursts;
    for (uint32_t i = 0; i < pairs; ++i) {
        std::string topic = "load/topic/" + std::to_string(i);
        bench.subscribe(pairs + i, topic, qos);
        bursts.push_back(burst(topic, qos));
    }
    size_t delivered = 0;
    for (auto _ : state) {
        for (uint32_t i = 0; i < pairs; ++i) bench.receive(i, bursts[i]);
        delivered += bench.answer_all();
    }
    if (delivered != static_cast<size_t>(state.iterations()) * pairs * kBurst) std::abort();
    state.SetItemsProcessed(static_cast<int64_t>(delivered));
}
BENCHMARK(BM_Pairs)->ArgsProduct({{1, 10}, {0, 1, 2}})->ArgNames({"pairs", "qos"});

void BM_FanOut(benchmark::State& state) {
    auto subscribers = static_cast<uint32_t>(state.range(0));
    Bench bench(1 + subscribers);
    for (uint32_t i = 1; i <= subscribers; ++i) bench.subscribe(i, "load/topic", mqtt::Qos::k0);
    std::string bytes = burst("load/topic", mqtt::Qos::k0);
    size_t delivered = 0;
    for (auto _ : state) {
        bench.receive(0, bytes);
        delivered += bench.answer_all();
    }
    state.SetItemsProcessed(static_cast<int64_t>(delivered));
}
BENCHMARK(BM_FanOut)->Arg(100)->ArgNames({"subscribers"});

void BM_FanIn(benchmark::State& state) {
    auto publishers = static_cast<uint32_t>(state.range(0));
    Bench bench(1 + publishers);
    bench.subscribe(0, "load/#", mqtt::Qos::k1);
    std::vector<std::string> bursts;
    for (uint32_t i = 0; i < publishers; ++i) {
        bursts.push_back(burst("load/topic/" + std::to_string(i), mqtt::Qos::k1));
    }
    size_t delivered = 0;
    for (auto _ : state) {
        for (uint32_t i = 0; i < publishers; ++i) {
            bench.receive(i + 1, bursts[i]);
            delivered += bench.answer_all();
        }
    }
    state.SetItemsProcessed(static_cast<int64_t>(delivered));
}
BENCHMARK(BM_FanIn)->Arg(100)->ArgNames({"publishers"});

}  // namespace
}  // namespace pgmqtt::broker

BENCHMARK_MAIN();
