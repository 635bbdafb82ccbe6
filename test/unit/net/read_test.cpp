#include <sys/epoll.h>

#include <new>

#include "unit/net/loopback.h"

namespace pgmqtt::net::test {
namespace {

// Packets of a toy protocol: a byte that says how many follow.
size_t whole_packets(base::ByteView bytes) {
    size_t consumed = 0;
    while (consumed < bytes.size()) {
        const size_t packet = 1 + static_cast<unsigned char>(bytes[consumed]);
        if (consumed + packet > bytes.size()) break;
        consumed += packet;
    }
    return consumed;
}

TEST_F(ServerTest, ABatchIsShownAtOnce) {
    auto [client, id] = connected();
    const std::string batch = pattern(50000);
    ASSERT_EQ(batch.size(), client.send(batch));
    ASSERT_TRUE(readable(server->poll_fd(), 5000));
    server->turn(handler);
    EXPECT_TRUE(handler.at(id).input == batch);
    EXPECT_EQ(1u, handler.at(id).calls);
    EXPECT_TRUE(idle());
    EXPECT_EQ(0u, server->input_bytes());
}

// As in the server's wait set, where the poller's descriptor is nested.
TEST_F(ServerTest, ANestedPollerWakesOncePerBatch) {
    Socket outer(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(0, epoll_ctl(outer.fd(), EPOLL_CTL_ADD, server->poll_fd(), &event));
    auto [client, id] = connected();
    for (size_t batch = 1; batch <= 20; ++batch) {
        ASSERT_EQ(0, epoll_wait(outer.fd(), &event, 1, 0));
        client.send(pattern(6400));
        ASSERT_EQ(1, epoll_wait(outer.fd(), &event, 1, 5000));
        server->turn(handler);
        ASSERT_EQ(batch, handler.at(id).calls);
    }
    EXPECT_EQ(0, epoll_wait(outer.fd(), &event, 1, 0));
}

TEST_F(ServerTest, ByteAtATime) {
    auto [client, id] = connected();
    handler.reading = [](ConnectionId, base::ByteView bytes) { return whole_packets(bytes); };
    std::string sent;
    for (int packet = 0; packet < 3; ++packet) {
        const size_t length = 100 + static_cast<size_t>(packet) * 50;
        sent += static_cast<char>(length);
        sent += pattern(length);
    }
    for (size_t i = 0; i < sent.size(); ++i) {
        client.send(sent.substr(i, 1));
        ASSERT_TRUE(readable(server->poll_fd(), 5000));
        server->turn(handler);
        ASSERT_TRUE(idle());
        // All that arrived is either consumed or kept, and nothing more is.
        ASSERT_EQ(i + 1, handler.at(id).input.size() + server->input_bytes());
    }
    EXPECT_TRUE(handler.at(id).input == sent);
    EXPECT_EQ(0u, server->input_bytes());
}

TEST_F(ServerTest, ALargePacketInPiecesArrivesWhole) {
    Limits limits;
    limits.max_input = 4 << 20;
    server->set_limits(limits);
    auto [client, id] = connected();
    const std::string packet = pattern(3 << 20);
    handler.reading = [&](ConnectionId, base::ByteView bytes) {
        return bytes.size() < packet.size() ? 0 : packet.size();
    };
    size_t sent = 0;
    for (int round = 0; round < 2; ++round) {
        sent = 0;
        handler.at(id).input.clear();
        ASSERT_TRUE(run_until([&, &client = client, &id = id] {
            sent += client.send(packet.substr(sent, 100000));
            return !handler.at(id).input.empty();
        }));
        EXPECT_TRUE(handler.at(id).input == packet);
        EXPECT_EQ(0u, server->input_bytes());
    }
}

TEST_F(ServerTest, ALargePacketCanBeKeptWhereItIs) {
    auto [client, id] = connected();
    const std::string packet = pattern(300000);
    std::vector<std::pair<base::ByteView, std::shared_ptr<const void>>> kept;
    handler.reading = [&](ConnectionId, base::ByteView bytes) {
        if (bytes.size() < packet.size()) {
            EXPECT_EQ(nullptr, server->keep(bytes.size() / 3).owner);  // not worth it
            server->expect(packet.size());
            return size_t{0};
        }
        base::KeptInput input = server->keep(packet.size());
        EXPECT_NE(nullptr, input.owner);
        EXPECT_LE(packet.size(), input.held);
        EXPECT_GE(2 * packet.size(), input.held);
        kept.push_back({bytes.substr(0, packet.size()), input.owner});
        return packet.size();
    };
    // The end of each comes with the beginning of the next.
    std::string stream = packet + packet + packet;
    size_t sent = 0;
    ASSERT_TRUE(run_until([&, &client = client] {
        sent += client.send(stream.substr(sent, 70000));
        return kept.size() == 3;
    }));
    for (const auto& [bytes, owner] : kept) EXPECT_TRUE(bytes == packet);
    EXPECT_EQ(0u, server->input_bytes());
}

// Who announces much and sends little gets little.
TEST_F(ServerTest, WhatIsExpectedIsBelievedInProportion) {
    auto [client, id] = connected();
    size_t held = 0;
    handler.reading = [&](ConnectionId, base::ByteView bytes) {
        server->expect(200 << 20);
        held = std::max(held, server->keep(bytes.size()).held / bytes.size());
        return size_t{0};
    };
    size_t sent = 0;
    ASSERT_TRUE(run_until([&, &client = client] {
        sent += client.send(pattern(3000));
        return sent > 300000;
    }));
    EXPECT_LE(held, 9u);
}

TEST_F(ServerTest, MoreThanMaxInputForOnePacketEndsTheConnection) {
    Limits limits;
    limits.max_input = 100000;
    server->set_limits(limits);
    auto [client, id] = connected();
    size_t largest = 0;
    handler.reading = [&](ConnectionId, base::ByteView) {
        largest = std::max(largest, server->input_bytes());
        return size_t{0};
    };
    ASSERT_TRUE(run_until([&, &client = client, &id = id] {
        client.send(pattern(65536));
        return handler.at(id).closed == 1;
    }));
    EXPECT_EQ("packet too large", handler.at(id).reason);
    EXPECT_LE(largest, limits.max_input + limits.read_budget);
    EXPECT_EQ(0u, server->input_bytes());
}

TEST_F(ServerTest, PausedConnectionsWakeNobody) {
    auto [client, id] = connected();
    server->pause(id);
    EXPECT_TRUE(comes_to_rest());
    client.send("one");
    readable(server->poll_fd(), 5000);  // the first bytes may wake us, once
    server->turn(handler);
    for (int i = 0; i < 20; ++i) {
        client.send("more");
        ASSERT_TRUE(idle());
    }
    client.half_close();
    EXPECT_TRUE(idle());
    EXPECT_EQ("", handler.at(id).input);
    EXPECT_EQ(0, handler.at(id).closed);

    server->resume(id);
    EXPECT_TRUE(server->has_backlog());
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).closed == 1; }));
    EXPECT_EQ(3u + 20 * 4, handler.at(id).input.size());
    EXPECT_EQ("closed by the peer", handler.at(id).reason);
}

TEST_F(ServerTest, PauseInsideOnBytesKeepsTheRestForResume) {
    auto [client, id] = connected();
    handler.reading = [&](ConnectionId self, base::ByteView) {
        server->pause(self);
        return size_t{1};
    };
    client.send("abc");
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).input == "a"; }));
    EXPECT_TRUE(comes_to_rest());
    EXPECT_EQ(2u, server->input_bytes());
    // Shown again without anything new having arrived.
    server->resume(id);
    EXPECT_TRUE(server->has_backlog());
    server->turn(handler);
    EXPECT_EQ("ab", handler.at(id).input);
    server->resume(id);
    client.send("d");
    server->turn(handler);
    EXPECT_EQ("abc", handler.at(id).input);
    EXPECT_TRUE(comes_to_rest());
    server->resume(id);
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).input == "abcd"; }));
    EXPECT_EQ(0u, server->input_bytes());
}

TEST_F(ServerTest, PauseAndResumeInsideOnBytesShowsTheRestAgain) {
    auto [client, id] = connected();
    handler.reading = [&](ConnectionId self, base::ByteView) {
        server->pause(self);
        server->resume(self);
        return size_t{1};
    };
    client.send("abcdef");
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).input == "abcdef"; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, ManyPauseAndResumeKeepALongRestInOrder) {
    auto [client, id] = connected();
    const std::string sent = pattern(60000);
    handler.reading = [&](ConnectionId self, base::ByteView bytes) {
        server->pause(self);
        return std::min<size_t>(777, bytes.size());
    };
    client.send(sent);
    ASSERT_TRUE(run_until([&, &self = id] {
        server->resume(self);
        return handler.at(self).input.size() == sent.size();
    }));
    EXPECT_TRUE(handler.at(id).input == sent);
}

TEST_F(ServerTest, AFloodDoesNotStarveAnother) {
    Limits limits;
    limits.read_budget = 2000;
    server->set_limits(limits);
    auto [flood, flood_id] = connected();
    auto [other, other_id] = connected();
    const std::string much = pattern(65536);
    size_t sent = 0;
    for (int turn = 1; turn <= 20; ++turn) {
        for (size_t taken; (taken = flood.send(much)) > 0;) sent += taken;
        other.send("x");
        ASSERT_TRUE(readable(server->poll_fd(), 5000) || server->has_backlog());
        const size_t before = handler.at(flood_id).input.size();
        server->turn(handler);
        EXPECT_EQ(before + limits.read_budget, handler.at(flood_id).input.size());
        EXPECT_EQ(static_cast<size_t>(turn), handler.at(other_id).input.size());
        EXPECT_TRUE(server->has_backlog());
    }
    // What is left is the server's to remember, not the poller's to report.
    server->set_limits(Limits{});
    ASSERT_TRUE(
        run_until([&, &flood_id = flood_id] { return handler.at(flood_id).input.size() == sent; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, TheTurnBudgetIsSharedEvenly) {
    Limits limits;
    limits.turn_budget = 80000;
    server->set_limits(limits);
    std::vector<Client> clients;
    for (int i = 0; i < 4; ++i) clients.emplace_back(port);
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 4; }));
    for (Client& client : clients) ASSERT_EQ(60000u, client.send(pattern(60000)));
    ASSERT_TRUE(readable(server->poll_fd(), 5000));
    server->turn(handler);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(20000u, handler.nth(i).input.size());
    ASSERT_TRUE(run_until([&] { return !server->has_backlog(); }));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(60000u, handler.nth(i).input.size());
}

TEST_F(ServerTest, LastBytesAndEndOfStreamInOneTurn) {
    auto [client, id] = connected();
    client.send("last words");
    client.half_close();
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).closed == 1; }));
    EXPECT_EQ("last words", handler.at(id).input);
    EXPECT_EQ("closed by the peer", handler.at(id).reason);
    EXPECT_EQ(0u, server->connections());
}

TEST_F(ServerTest, EndOfStreamInsideAPacketReleasesIt) {
    auto [client, id] = connected();
    handler.reading = [](ConnectionId, base::ByteView) { return size_t{0}; };
    client.send(pattern(9000));
    client.half_close();
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).closed == 1; }));
    EXPECT_EQ(0u, server->input_bytes());
}

TEST_F(ServerTest, ResetIsTold) {
    auto [client, id] = connected();
    client.abort();
    ASSERT_TRUE(run_until([&, &id = id] { return handler.at(id).closed == 1; }));
    EXPECT_EQ("Connection reset by peer", handler.at(id).reason);
    EXPECT_EQ(0, handler.at(id).drained);
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, OutOfMemoryInOnBytesEndsThatConnectionOnly) {
    auto [client, id] = connected();
    auto [other, other_id] = connected();
    handler.reading = [&, bad = id](ConnectionId self, base::ByteView bytes) -> size_t {
        if (self == bad) {
            handler.inside = false;
            throw std::bad_alloc();
        }
        return bytes.size();
    };
    client.send("boom");
    other.send("fine");
    ASSERT_TRUE(run_until([&, &bad = id, &good = other_id] {
        return handler.at(bad).closed == 1 && handler.at(good).input == "fine";
    }));
    EXPECT_EQ("out of memory", handler.at(id).reason);
    EXPECT_EQ(0, handler.at(other_id).closed);
}

TEST_F(ServerTest, OutOfMemoryInOnClosedIsSurvived) {
    auto [client, id] = connected();
    handler.closing = [&](ConnectionId) {
        handler.inside = false;
        throw std::bad_alloc();
    };
    client.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(1, handler.at(id).closed);
}

TEST_F(ServerTest, ClosingTheReadConnectionInsideOnBytesEndsReading) {
    Limits limits;
    limits.read_budget = 1000;
    server->set_limits(limits);
    auto [client, id] = connected();
    handler.reading = [&](ConnectionId self, base::ByteView bytes) {
        server->close(self);
        server->pause(self);  // too late: ignored
        server->resume(self);
        server->flush(self, handler);
        return bytes.size() / 2;
    };
    client.send(pattern(5000));
    client.half_close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(1u, handler.at(id).calls);
    EXPECT_EQ(1, handler.at(id).closed);
    EXPECT_EQ("closed by the server", handler.at(id).reason);
}

TEST_F(ServerTest, ClosingAnotherInsideOnBytesStopsItsBytes) {
    auto [first, first_id] = connected();
    auto [second, second_id] = connected();
    handler.reading = [&, a = first_id, b = second_id](ConnectionId self, base::ByteView bytes) {
        server->close(self == a ? b : a);
        return bytes.size();
    };
    first.send("x");
    second.send("y");
    first.half_close();
    second.half_close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(1u, handler.at(first_id).calls + handler.at(second_id).calls);
    EXPECT_EQ(1, handler.at(first_id).closed);
    EXPECT_EQ(1, handler.at(second_id).closed);
}

}  // namespace
}  // namespace pgmqtt::net::test
