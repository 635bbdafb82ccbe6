// Limits::max_input_total: many who announce large packets, and the memory they may take.
#include <algorithm>

#include "loopback.h"

namespace pgmqtt::net::test {
namespace {

constexpr size_t kTotal = 512 << 10;
constexpr size_t kPacket = 200 << 10;

class InputLimitTest : public ServerTest {
   protected:
    void SetUp() override {
        limits.max_input = 1 << 20;
        limits.max_input_total = kTotal;
        start(limits);
        handler.reading = [this](ConnectionId, base::ByteView bytes) {
            largest = std::max(largest, server->input_bytes());
            if (bytes.front() == 's') return bytes.size();  // a small packet
            return bytes.size() < kPacket ? 0 : kPacket;
        };
    }

    size_t bound(size_t clients) const { return 2 * kTotal + clients * (8 << 10) + (1 << 20); }

    Limits limits;
    size_t largest = 0;
};

TEST_F(InputLimitTest, ManyHalfPacketsTakeBoundedMemoryAndStopNobodyElse) {
    constexpr size_t kClients = 60;
    std::vector<Client> greedy;
    for (size_t i = 0; i < kClients; ++i) greedy.push_back(connected().first);
    auto [modest, modest_id] = connected();
    const std::string most(kPacket - 1, 'x');
    std::vector<size_t> sent(kClients, 0);
    for (int round = 0; round < 200; ++round) {
        for (size_t i = 0; i < kClients; ++i) sent[i] += greedy[i].send(most.substr(sent[i]));
        server->turn(handler);
    }
    EXPECT_LE(largest, bound(kClients + 1));
    EXPECT_LE(server->input_bytes(), bound(kClients + 1));
    for (size_t i = 1; i <= 20; ++i) {
        modest.send("small");
        ASSERT_TRUE(run_until(
            [&, &modest_id = modest_id] { return handler.at(modest_id).input.size() == 5 * i; }));
    }
}

TEST_F(InputLimitTest, PacketsThatDoNotFitTogetherAllArrive) {
    constexpr size_t kClients = 12;
    std::vector<Client> clients;
    std::vector<ConnectionId> ids;
    for (size_t i = 0; i < kClients; ++i) {
        auto [client, id] = connected();
        clients.push_back(std::move(client));
        ids.push_back(id);
    }
    const std::string packet(kPacket, 'x');
    std::vector<size_t> sent(kClients, 0);
    EXPECT_TRUE(run_until([&] {
        for (size_t i = 0; i < kClients; ++i) sent[i] += clients[i].send(packet.substr(sent[i]));
        return std::all_of(ids.begin(), ids.end(), [this](ConnectionId id) {
            return handler.at(id).input.size() == kPacket;
        });
    }));
    EXPECT_EQ(0u, server->input_bytes());
    EXPECT_LE(largest, bound(kClients));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(InputLimitTest, WhoDoesNotGoOnEndsSoThatOthersCan) {
    limits.stall_ms = 30;
    server->set_limits(limits);
    constexpr size_t kClients = 8;
    std::vector<Client> stalled;
    for (size_t i = 0; i < kClients; ++i) {
        stalled.push_back(connected().first);
        stalled.back().send(std::string(kPacket - 1, 'x'));
    }
    auto [client, id] = connected();
    const std::string packet(kPacket, 'x');
    size_t sent = 0;
    EXPECT_TRUE(run_until([&, &client = client, &id = id] {
        for (size_t i = 0; i < kClients; ++i) stalled[i].send("");
        sent += client.send(packet.substr(sent));
        return handler.at(id).input.size() == kPacket;
    }));
    EXPECT_LE(largest, bound(kClients + 1));
    EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace pgmqtt::net::test
