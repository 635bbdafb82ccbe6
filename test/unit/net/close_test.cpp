#include "unit/net/loopback.h"

namespace pgmqtt::net::test {
namespace {

TEST_F(ServerTest, CloseDeliversTheLastBytesAlthoughThePeerKeepsSending) {
    auto [client, id] = connected();
    // Unread bytes in our receive buffer, and more to come: a plain close would send a reset.
    const std::string noise = pattern(65536);
    server->pause(id);
    while (client.send(noise) > 0) {
    }
    handler.at(id).outbox.tail().append("DISCONNECT");
    server->close(id);
    EXPECT_EQ(0, handler.at(id).closed);
    ASSERT_TRUE(run_until([&, &c = client] {
        c.send(noise);
        c.receive();
        return c.ended || c.reset;
    }));
    EXPECT_FALSE(client.reset);
    EXPECT_EQ("DISCONNECT", client.received);
    client.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(1, handler.at(id).closed);
    EXPECT_EQ("", handler.at(id).input);
    EXPECT_EQ("closed by the server", handler.at(id).reason);
}

TEST_F(ServerTest, CloseSendsALargeRestToAPeerThatReads) {
    auto [client, id] = connected(16384);
    const std::string rest = pattern(8 << 20);
    handler.at(id).outbox.tail().append(rest);
    server->close(id);
    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive();
        return c.ended || c.reset;
    }));
    EXPECT_TRUE(client.received == rest);
}

TEST_F(ServerTest, ClosingEndsAtTheLingerDeadline) {
    Limits limits;
    limits.linger_ms = 50;
    server->set_limits(limits);
    auto [silent, silent_id] = connected();
    auto [deaf, deaf_id] = connected(16384);
    write(deaf_id, pattern(16 << 20));
    server->close(silent_id);  // never closes its side
    server->close(deaf_id);    // never reads
    server->turn(handler);
    EXPECT_TRUE(comes_to_rest());
    const int due = server->linger_deadline_ms();
    EXPECT_GE(due, 0);
    EXPECT_LE(due, 50);
    const auto start = Clock::now();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
    EXPECT_EQ(1, handler.at(silent_id).closed);
    EXPECT_EQ(1, handler.at(deaf_id).closed);
    EXPECT_EQ(-1, server->linger_deadline_ms());
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, APeerThatFloodsWhileClosingIsCutOffToo) {
    Limits limits;
    limits.linger_ms = 50;
    server->set_limits(limits);
    auto [client, id] = connected();
    server->close(id);
    const std::string noise = pattern(65536);
    ASSERT_TRUE(run_until([&, &c = client] {
        c.send(noise);
        return server->connections() == 0;
    }));
    EXPECT_EQ(1, handler.at(id).closed);
}

TEST_F(ServerTest, WithoutLingerCloseIsOverInOneTurn) {
    Limits limits;
    limits.linger_ms = 0;
    server->set_limits(limits);
    auto [client, id] = connected();
    handler.at(id).outbox.tail().append("bye");
    server->close(id);
    server->turn(handler);
    EXPECT_EQ(1, handler.at(id).closed);
    ASSERT_TRUE(readable(client.fd(), 5000));
    client.receive();
    EXPECT_EQ("bye", client.received);
}

TEST_F(ServerTest, ClosingTwiceIsClosingOnce) {
    auto [client, id] = connected();
    server->close(id);
    server->close(id);
    client.half_close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    server->close(id);
    EXPECT_FALSE(server->has_backlog());
    EXPECT_EQ(1, handler.at(id).closed);
}

TEST_F(ServerTest, CloseAfterThePeersEndIsDoneAtOnce) {
    auto [client, id] = connected();
    server->pause(id);
    client.close();
    server->close(id);
    server->turn(handler);
    EXPECT_EQ(1, handler.at(id).closed);
    EXPECT_EQ(0u, server->connections());
}

TEST_F(ServerTest, OnClosedMayCloseTheOthers) {
    std::vector<Client> clients;
    for (int i = 0; i < 5; ++i) clients.emplace_back(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 5; }));
    handler.closing = [&](ConnectionId) {
        for (const ConnectionId id : handler.accepted) {
            server->close(id);
            server->flush(id, handler);
        }
    };
    for (Client& client : clients) client.half_close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(1, handler.nth(i).closed);
}

TEST_F(ServerTest, LingeringEndsInAnyOrder) {
    std::vector<Client> clients;
    for (int i = 0; i < 6; ++i) clients.emplace_back(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 6; }));
    for (const ConnectionId id : handler.accepted) server->close(id);
    for (const size_t gone : {2u, 5u, 0u, 3u}) {
        const size_t before = server->connections();
        clients[gone].close();
        ASSERT_TRUE(run_until([&] { return server->connections() == before - 1; }));
        EXPECT_GT(server->linger_deadline_ms(), 0);
    }
    clients.clear();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(-1, server->linger_deadline_ms());
}

TEST_F(ServerTest, ADestroyedServerCallsNobody) {
    auto [client, id] = connected();
    server->close(id);
    server.reset();
    EXPECT_EQ(0, handler.at(id).closed);
    ASSERT_TRUE(readable(client.fd(), 5000));
}

}  // namespace
}  // namespace pgmqtt::net::test
