// The server with a transport as awkward as TLS may be.
#include "net/transport.h"

#include <string>

#include "unit/net/loopback.h"

namespace pgmqtt::net::test {
namespace {

IoResult blocked(bool on_other) {
    IoResult result;
    result.status = IoStatus::kBlocked;
    result.waits_for_other = on_other;
    return result;
}

// Shakes hands first (the peer says "hi", we answer when writable), keeps plain bytes and unsent
// bytes inside, wants writability to read and readability to write now and then.
class Awkward final : public Transport {
   public:
    explicit Awkward(int fd) : tcp_(make_tcp_transport(fd)) {}

    int fd() const override { return tcp_->fd(); }

    IoResult handshake() override {
        if (heard_.size() < 2) {
            char buffer[2];
            const IoResult result = tcp_->read(buffer, 2 - heard_.size());
            heard_.append(buffer, result.bytes);
            if (result.status != IoStatus::kOk) return result;
            return blocked(true);
        }
        pending_ = "hello";
        return drain();
    }

    IoResult read(char* into, size_t capacity) override {
        if (plain_.empty()) {
            if (++reads_ % 3 == 0) return blocked(true);
            plain_.resize(50000);
            const IoResult result = tcp_->read(plain_.data(), plain_.size());
            plain_.resize(result.bytes);
            if (result.bytes == 0) return result;
        }
        IoResult result;
        result.bytes = std::min({capacity, plain_.size(), size_t{1000}});
        std::memcpy(into, plain_.data(), result.bytes);
        plain_.erase(0, result.bytes);
        return result;
    }

    IoResult writev(const iovec* vectors, size_t count) override {
        if (!pending_.empty()) {
            const IoResult result = drain();
            if (result.status != IoStatus::kOk) return result;
        }
        if (count == 0) return {};
        if (wait_for_word_ && ++writes_ == 2) return blocked(true);
        pending_.assign(static_cast<const char*>(vectors[0].iov_base), vectors[0].iov_len);
        IoResult taken = drain();
        if (taken.status == IoStatus::kFailed) return taken;
        taken.bytes = vectors[0].iov_len;
        return taken;
    }

    bool holds_output() const override { return !pending_.empty(); }

    IoResult shutdown() override {
        if (!said_goodbye_) {
            said_goodbye_ = true;
            return blocked(false);
        }
        return tcp_->shutdown();
    }

    std::string describe(int error) const override { return tcp_->describe(error); }

    static inline bool wait_for_word_ = false;

   private:
    IoResult drain() {
        const iovec vector{pending_.data(), pending_.size()};
        IoResult result = tcp_->writev(&vector, 1);
        pending_.erase(0, result.bytes);
        result.bytes = 0;
        return result;
    }

    std::unique_ptr<Transport> tcp_;
    std::string heard_;
    std::string plain_;
    std::string pending_;
    int reads_ = 0;
    int writes_ = 0;
    bool said_goodbye_ = false;
};

class AwkwardTest : public ServerTest {
   protected:
    void SetUp() override {
        Awkward::wait_for_word_ = false;
        start(Limits{});
        // The listener stays, what it makes of connections changes.
        ASSERT_TRUE(server->listen(
            {{"127.0.0.1", port, [](int fd) { return std::make_unique<Awkward>(fd); }}}));
    }

    void shake_hands(Client& client) {
        client.send("h");
        EXPECT_TRUE(comes_to_rest());
        client.send("i");
        EXPECT_TRUE(run_until([&] {
            client.receive();
            return client.received == "hello";
        }));
        client.received.clear();
        EXPECT_TRUE(comes_to_rest());
    }
};

TEST_F(AwkwardTest, EchoesThroughIt) {
    auto [client, id] = connected(16384);
    shake_hands(client);
    handler.reading = [&](ConnectionId self, base::ByteView bytes) {
        handler.at(self).outbox.tail().append(bytes);
        return bytes.size();
    };
    const std::string sent = pattern(1 << 20);
    size_t taken = 0;
    ASSERT_TRUE(run_until([&, &c = client, &self = id] {
        if (taken < sent.size()) taken += c.send(sent.substr(taken, 30000));
        server->flush(self, handler);
        c.receive();
        return c.received.size() == sent.size();
    }));
    EXPECT_TRUE(client.received == sent);
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(AwkwardTest, AWriteMayWaitForAReadEvenWhenPaused) {
    Awkward::wait_for_word_ = true;
    auto [client, id] = connected();
    shake_hands(client);
    write(id, "one");
    server->pause(id);
    write(id, "two");
    EXPECT_FALSE(handler.at(id).outbox.empty());
    EXPECT_TRUE(comes_to_rest());
    client.send("word");
    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive();
        return c.received == "onetwo";
    }));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(AwkwardTest, CloseSendsWhatIsInsideAndSaysGoodbye) {
    auto [client, id] = connected(16384);
    shake_hands(client);
    const std::string rest = pattern(8 << 20);
    handler.at(id).outbox.tail().append(rest);
    server->close(id);
    ASSERT_TRUE(run_until([&, &c = client] {
        c.receive();
        return c.ended || c.reset;
    }));
    EXPECT_TRUE(client.received == rest);
    EXPECT_FALSE(client.reset);
    client.close();
    ASSERT_TRUE(run_until([&] { return server->connections() == 0; }));
}

TEST_F(AwkwardTest, APeerThatNeverShakesHandsCanBeClosed) {
    auto [silent, id] = connected();
    auto [half, half_id] = connected();
    half.send("h");
    EXPECT_TRUE(comes_to_rest());
    server->close(id);
    server->close(half_id);
    server->turn(handler);
    EXPECT_EQ(1, handler.at(id).closed);
    EXPECT_EQ(1, handler.at(half_id).closed);
    EXPECT_EQ(0u, server->connections());
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(AwkwardTest, APeerThatLeavesDuringTheHandshakeIsTold) {
    auto [client, id] = connected();
    client.send("h");
    client.close();
    ASSERT_TRUE(run_until([&, &self = id] { return handler.at(self).closed == 1; }));
    EXPECT_EQ("closed by the peer", handler.at(id).reason);
}

}  // namespace
}  // namespace pgmqtt::net::test
