#include <new>

#include "unit/net/loopback.h"

namespace pgmqtt::net::test {
namespace {

constexpr int kSmallBuffer = 16384;

// More than the socket buffers of both ends hold.
const std::string& much() {
    static const std::string bytes = pattern(16 << 20);
    return bytes;
}

TEST_F(ServerTest, SmallAndSharedChunksLeaveInOrder) {
    auto [client, id] = connected();
    auto shared = std::make_shared<const std::string>(pattern(3000));
    std::string expected;
    base::Outbox& outbox = handler.at(id).outbox;
    for (size_t i = 0; i < 300; ++i) {  // more than one call's vectors
        const std::string head = "packet " + std::to_string(i) + ":";
        outbox.tail().append(head);
        outbox.append_shared(shared, base::ByteView(*shared).substr(i, 50));
        expected += head + shared->substr(i, 50);
    }
    server->flush(id, handler);
    EXPECT_TRUE(outbox.empty());
    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive();
        return c.received.size() >= expected.size();
    }));
    EXPECT_EQ(expected, client.received);
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, ABlockedOutputWakesNobodyUntilThePeerReads) {
    auto [client, id] = connected(kSmallBuffer);
    write(id, much());
    EXPECT_FALSE(handler.at(id).outbox.empty());
    EXPECT_TRUE(comes_to_rest());
    EXPECT_EQ(0, handler.at(id).drained);
    // Flushing again changes nothing: it waits for the socket.
    const size_t left = handler.at(id).outbox.size();
    server->flush(id, handler);
    EXPECT_EQ(left, handler.at(id).outbox.size());

    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive();
        return c.received.size() == much().size();
    }));
    EXPECT_TRUE(client.received == much());
    EXPECT_GT(handler.at(id).drained, 0);
    EXPECT_TRUE(handler.at(id).outbox.empty());
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, ABlockedOutputStillReads) {
    auto [client, id] = connected(kSmallBuffer);
    write(id, much());
    client.send("alive");
    ASSERT_TRUE(run_until([&, &self = id] { return handler.at(self).input == "alive"; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, ASlowReaderGetsEverythingInOrderThroughABoundedOutbox) {
    auto [client, id] = connected(kSmallBuffer);
    constexpr size_t kRoom = 100000;
    constexpr size_t kTotal = 4 << 20;
    size_t produced = 0;
    size_t largest = 0;
    // What a producer does with on_drained(): fill up to the bound, wait, fill again.
    const auto produce = [&](ConnectionId self) {
        base::Outbox& outbox = handler.at(self).outbox;
        while (outbox.size() < kRoom && produced < kTotal) {
            const size_t piece = std::min<size_t>(5000, kTotal - produced);
            outbox.tail().append(much(), produced, piece);
            produced += piece;
            if (outbox.size() >= kRoom) server->flush(self, handler);
        }
        largest = std::max(largest, outbox.size());
        server->flush(self, handler);
    };
    handler.draining = produce;
    produce(id);
    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive(7000);
        return c.received.size() == kTotal;
    }));
    EXPECT_TRUE(client.received == base::ByteView(much()).substr(0, kTotal));
    EXPECT_LE(largest, kRoom + 5000);
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, AnOutboxEmptiedWhileBlockedIsToldAsDrained) {
    auto [client, id] = connected(kSmallBuffer);
    write(id, much());
    handler.at(id).outbox.clear();
    ASSERT_TRUE(run_until([&, &c = client, &self = id] {
        c.receive();
        return handler.at(self).drained > 0;
    }));
    EXPECT_TRUE(comes_to_rest());
    write(id, "again");
    EXPECT_TRUE(handler.at(id).outbox.empty());
}

TEST_F(ServerTest, WritingToAGonePeerEndsInTheNextTurn) {
    auto [client, id] = connected();
    client.abort();
    write(id, "anybody?");  // EPIPE or ECONNRESET, and no SIGPIPE
    EXPECT_EQ(0, handler.at(id).closed);
    EXPECT_TRUE(server->has_backlog());
    server->turn(handler);
    EXPECT_EQ(1, handler.at(id).closed);
    EXPECT_EQ(0u, server->connections());
    server->flush(id, handler);
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, AFailingFlushInsideACallbackTellsTheEndOutsideOfIt) {
    auto [gone, gone_id] = connected();
    auto [writer, writer_id] = connected();
    handler.reading = [&, other = gone_id, &gone = gone](ConnectionId self, base::ByteView bytes) {
        if (self == other) return bytes.size();
        gone.abort();
        handler.at(other).outbox.tail().append("for you");
        server->flush(other, handler);  // the recorder checks that nothing nests
        server->flush(other, handler);
        server->close(other);
        EXPECT_EQ(0, handler.at(other).closed);
        return bytes.size();
    };
    writer.send("x");
    ASSERT_TRUE(run_until([&, &id = gone_id] { return handler.at(id).closed == 1; }));
    EXPECT_EQ(1u, server->connections());
}

// A client that publishes and leaves without reading its answers: our write fails, its words count.
TEST_F(ServerTest, BytesSentBeforeAResetOfOurAnswersAreHeard) {
    auto [client, id] = connected();
    Limits limits;
    limits.read_budget = 1000;
    server->set_limits(limits);
    const std::string sent = pattern(1800);
    write(id, "unread answer");
    client.send(sent);
    client.close();  // with unread bytes: a reset
    ASSERT_TRUE(run_until([&, &self = id] {
        if (handler.at(self).closed == 0) write(self, "answer");
        return handler.at(self).closed == 1;
    }));
    EXPECT_TRUE(handler.at(id).input == sent) << handler.at(id).input.size();
}

TEST_F(ServerTest, AHalfClosedPeerGetsItsAnswers) {
    auto [client, id] = connected(kSmallBuffer);
    handler.reading = [&](ConnectionId self, base::ByteView bytes) {
        handler.at(self).outbox.tail().append(much());
        return bytes.size();
    };
    client.send("question");
    client.half_close();
    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive();
        return c.ended || c.reset;
    }));
    EXPECT_TRUE(client.received == much());
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
    EXPECT_EQ(1, handler.at(id).closed);
    EXPECT_EQ("closed by the peer", handler.at(id).reason);
}

TEST_F(ServerTest, ABlockedAndPausedConnectionWhosePeerIsResetEnds) {
    auto [client, id] = connected(kSmallBuffer);
    write(id, much());
    server->pause(id);
    client.abort();
    ASSERT_TRUE(run_until([&, &self = id] { return handler.at(self).closed == 1; }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ServerTest, OutOfMemoryInOnDrainedEndsThatConnection) {
    auto [client, id] = connected(kSmallBuffer);
    handler.draining = [&](ConnectionId) {
        handler.inside = false;
        throw std::bad_alloc();
    };
    write(id, much());
    ASSERT_TRUE(run_until([&, &c = client, &self = id] {
        c.receive();
        return handler.at(self).closed == 1;
    }));
    EXPECT_EQ("out of memory", handler.at(id).reason);
}

}  // namespace
}  // namespace pgmqtt::net::test
