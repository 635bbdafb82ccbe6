#include "unit/net/loopback.h"

#include <new>

namespace pgmqtt::net::test {
namespace {

// Lowers the soft limit so that no new descriptor can be had; the destructor restores it.
class DescriptorLimit {
   public:
    DescriptorLimit() {
        getrlimit(RLIMIT_NOFILE, &before_);
        // The lowest free number: nothing above it is ever given out, holes below do not exist.
        const int next = dup(0);
        ::close(next);
        rlimit lowered = before_;
        lowered.rlim_cur = static_cast<rlim_t>(next);
        EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &lowered));
    }
    ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

   private:
    rlimit before_;
};

// How many connections fit when both ends live in this process.
size_t affordable(size_t wanted) {
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * wanted + 200);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return std::min<size_t>(wanted, limit.rlim_cur < 300 ? 20 : (limit.rlim_cur - 200) / 2);
}

TEST_F(ServerTest, AnIdleServerIsIdle) {
    EXPECT_TRUE(idle());
    server->turn(handler);
    EXPECT_TRUE(idle());
    EXPECT_EQ(-1, server->linger_deadline_ms());
}

TEST_F(ServerTest, AcceptsAndTellsThePeersAddress) {
    auto [client, id] = connected();
    sockaddr_in local{};
    socklen_t length = sizeof local;
    getsockname(client.fd(), reinterpret_cast<sockaddr*>(&local), &length);
    EXPECT_EQ("127.0.0.1", handler.at(id).address.address);
    EXPECT_EQ(ntohs(local.sin_port), handler.at(id).address.port);
    EXPECT_TRUE(handler.at(id).address.loopback);
    EXPECT_EQ(1u, server->connections());
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, AThousandConnectionsAtOnce) {
    const size_t count = affordable(1000);
    std::vector<Client> clients;
    for (size_t i = 0; i < count; ++i) clients.emplace_back(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == count; }));
    EXPECT_EQ(count, server->connections());
    EXPECT_TRUE(comes_to_rest());

    // More than a poll returns at once may be ready: everybody is served all the same.
    for (Client& client : clients) client.send("ping");
    ASSERT_TRUE(run_until([&] {
        return std::all_of(handler.peers.begin(), handler.peers.end(),
                           [](const auto& peer) { return peer.second->input == "ping"; });
    }));
    EXPECT_EQ(0u, server->input_bytes());
    EXPECT_TRUE(comes_to_rest());

    for (Client& client : clients) client.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    for (const auto& [id, peer] : handler.peers) EXPECT_EQ(1, peer->closed);
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, AcceptsOnlySoManyPerTurn) {
    Limits limits;
    limits.accepts_per_turn = 4;
    server->set_limits(limits);
    std::vector<Client> clients;
    for (int i = 0; i < 10; ++i) clients.emplace_back(port);
    ASSERT_TRUE(readable(server->poll_fd(), 5000));
    server->turn(handler);
    EXPECT_EQ(4u, handler.accepted.size());
    server->turn(handler);
    EXPECT_EQ(8u, handler.accepted.size());
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 10; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, RefusesAboveMaxConnectionsOnceAndIsIdleThen) {
    Limits limits;
    limits.max_connections = 2;
    server->set_limits(limits);
    Client first(port);
    Client second(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 2; }));
    Client third(port);
    Client fourth(port);
    ASSERT_TRUE(run_until([&] { return handler.refused == 2; }));
    EXPECT_EQ("too many connections", handler.refusal);
    EXPECT_EQ(2u, server->connections());
    EXPECT_TRUE(comes_to_rest());
    ASSERT_TRUE(readable(third.fd(), 5000));
    third.receive();
    EXPECT_TRUE(third.ended || third.reset);

    first.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 1; }));
    Client fifth(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 3; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, ManyRefusalsOfATurnAreToldOnce) {
    Limits limits;
    limits.max_connections = 0;
    server->set_limits(limits);
    std::vector<Client> clients;
    for (int i = 0; i < 20; ++i) clients.emplace_back(port);
    ASSERT_TRUE(readable(server->poll_fd(), 5000));
    server->turn(handler);
    EXPECT_EQ(1, handler.refusals);
    EXPECT_EQ(20u, handler.refused);
}

TEST_F(ServerTest, ReusedSlotsHaveANewGeneration) {
    auto [first, old_id] = connected();
    first.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    auto [second, new_id] = connected();
    EXPECT_EQ(old_id.slot, new_id.slot);
    EXPECT_NE(old_id.generation, new_id.generation);
    // The dead id reaches nobody.
    server->pause(old_id);
    server->close(old_id);
    server->flush(old_id, handler);
    server->resume(old_id);
    second.send("still here");
    ASSERT_TRUE(
        run_until([&, &new_id = new_id] { return handler.at(new_id).input == "still here"; }));
    EXPECT_EQ(0, handler.at(new_id).closed);
}

TEST_F(ServerTest, WithoutDescriptorsTheReserveRefuses) {
    auto [before, id] = connected();
    std::vector<Client> clients;
    for (int i = 0; i < 5; ++i) clients.emplace_back(port);
    {
        DescriptorLimit none_left;
        ASSERT_TRUE(run_until([&] { return handler.refused == 5; }));
        EXPECT_EQ("no descriptors left", handler.refusal);
        EXPECT_TRUE(comes_to_rest());
        before.send("served");
        ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).input == "served"; }));
        EXPECT_EQ(1u, handler.accepted.size());
    }
    auto [after, after_id] = connected();
    EXPECT_EQ(2u, server->connections());
}

// The reserve is gone, too, when other code of the process has taken its number meanwhile.
TEST_F(ServerTest, WithoutEvenTheReserveAcceptingIsSuspendedAndResumed) {
    auto [first, first_id] = connected();
    Client waiting(port);
    {
        rlimit before;
        getrlimit(RLIMIT_NOFILE, &before);
        rlimit nothing = before;
        nothing.rlim_cur = 0;
        ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &nothing));
        server->turn(handler);
        server->turn(handler);
        const bool at_rest = !server->has_backlog();
        const int due = server->linger_deadline_ms();
        const int refusals = handler.refusals;
        setrlimit(RLIMIT_NOFILE, &before);
        EXPECT_TRUE(at_rest);
        EXPECT_EQ(1, refusals);
        EXPECT_EQ(0u, handler.refused);
        EXPECT_GT(due, 0);
        EXPECT_LE(due, 1000);
    }
    // The client still waits in the kernel's queue, yet nothing wakes us.
    EXPECT_TRUE(idle());
    // A connection that ends gives a descriptor back: no need to wait for the retry.
    first.close();
    const auto start = Clock::now();
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 2; }));
    EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(900));
    EXPECT_EQ(-1, server->linger_deadline_ms());
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, SuspendedAcceptingRetriesByItself) {
    Client waiting(port);
    rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit nothing = before;
    nothing.rlim_cur = 0;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &nothing));
    server->turn(handler);
    setrlimit(RLIMIT_NOFILE, &before);
    ASSERT_EQ(1, handler.refusals);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 1; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, OutOfMemoryInOnAcceptedEndsThatConnection) {
    handler.accepting = [&](ConnectionId) {
        handler.inside = false;
        if (handler.accepted.size() == 1) throw std::bad_alloc();
    };
    Client unlucky(port);
    Client lucky(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 2; }));
    EXPECT_EQ(1, handler.nth(0).closed);
    EXPECT_EQ("out of memory", handler.nth(0).reason);
    EXPECT_EQ(0, handler.nth(1).closed);
    EXPECT_EQ(1u, server->connections());
}

TEST_F(ServerTest, AHandlerMayCloseWhatItJustAccepted) {
    handler.accepting = [&](ConnectionId id) {
        handler.at(id).outbox.tail().append("go away");
        server->close(id);
    };
    Client client(port);
    client.send("hello");
    ASSERT_TRUE(run_until([&] {
        client.receive();
        return client.ended || client.reset;
    }));
    EXPECT_EQ("go away", client.received);
    EXPECT_FALSE(client.reset);
    client.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(1, handler.nth(0).closed);
    EXPECT_EQ("", handler.nth(0).input);
}

TEST_F(ServerTest, StopListeningKeepsConnections) {
    auto [client, id] = connected();
    server->stop_listening();
    EXPECT_FALSE(server->listening());
    client.send("x");
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).input == "x"; }));
    const sockaddr_in address = loopback(port);
    Socket late(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_NE(0, connect(late.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
    EXPECT_TRUE(server->listen({{"127.0.0.1", port}}));
    auto [next, next_id] = connected();
    EXPECT_EQ(2u, server->connections());
}

}  // namespace
}  // namespace pgmqtt::net::test
