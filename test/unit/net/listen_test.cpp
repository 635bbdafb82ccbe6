#include <netinet/tcp.h>

#include "net/listener.h"
#include "unit/net/loopback.h"

namespace pgmqtt::net::test {
namespace {

class ListenTest : public ServerTest {
   protected:
    void SetUp() override { server = std::make_unique<Server>(Limits{}); }

    static bool connects_to(const char* host, uint16_t to) {
        sockaddr_in6 v6{};
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(to);
        sockaddr_in v4 = loopback(to);
        const bool is_v6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
        Socket socket(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!is_v6) inet_pton(AF_INET, host, &v4.sin_addr);
        return is_v6 ? connect(socket.fd(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0
                     : connect(socket.fd(), reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0;
    }

    static bool has_ipv6() {
        Socket socket(::socket(AF_INET6, SOCK_STREAM, 0));
        sockaddr_in6 v6{};
        v6.sin6_family = AF_INET6;
        v6.sin6_addr = in6addr_loopback;
        return bind(socket.fd(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0;
    }
};

TEST_F(ListenTest, LocalhostIsBothLoopbacks) {
    port = occupy_port().second;
    const auto status = server->listen({{"localhost", port}});
    ASSERT_TRUE(status) << status.error();
    EXPECT_TRUE(connects_to("127.0.0.1", port));
    if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
    EXPECT_TRUE(connects_to("::1", port));
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 2; }));
    std::set<std::string> addresses;
    for (const auto& [id, peer] : handler.peers) {
        EXPECT_TRUE(peer->address.loopback);
        addresses.insert(peer->address.address);
    }
    EXPECT_EQ((std::set<std::string>{"127.0.0.1", "::1"}), addresses);
}

TEST_F(ListenTest, StarIsEveryAddress) {
    port = occupy_port().second;
    const auto status = server->listen({{"*", port}});
    ASSERT_TRUE(status) << status.error();
    EXPECT_TRUE(connects_to("127.0.0.1", port));
    EXPECT_TRUE(connects_to("127.0.0.2", port));
    if (has_ipv6()) {
        EXPECT_TRUE(connects_to("::1", port));
    }
}

TEST_F(ListenTest, APortInUseFailsWithTextAndSucceedsWhenFreed) {
    auto [holder, taken] = occupy_port();
    port = occupy_port().second;
    auto status = server->listen({{"127.0.0.1", taken}, {"127.0.0.1", port}});
    ASSERT_FALSE(status);
    EXPECT_EQ("could not listen on \"127.0.0.1\", port " + std::to_string(taken) +
                  ": Address already in use",
              status.error());
    // What did open stays open.
    EXPECT_TRUE(server->listening());
    EXPECT_TRUE(connects_to("127.0.0.1", port));

    holder.close();
    status = server->listen({{"127.0.0.1", taken}, {"127.0.0.1", port}});
    ASSERT_TRUE(status) << status.error();
    EXPECT_TRUE(connects_to("127.0.0.1", taken));
    EXPECT_TRUE(connects_to("127.0.0.1", port));
}

TEST_F(ListenTest, FailureNamesTheAddressBehindAName) {
    auto [holder, taken] = occupy_port();
    const auto status = server->listen({{"localhost", taken}});
    ASSERT_FALSE(status);
    EXPECT_NE(std::string::npos, status.error().find("\"localhost\" (127.0.0.1), port"));
}

TEST_F(ListenTest, HostNamesAreRefusedWithoutAskingANameServer) {
    for (const char* host : {"broker.example", "", "1.2.3.4.5", "::1::"}) {
        const auto status = server->listen({{host, 1883}});
        ASSERT_FALSE(status);
        EXPECT_EQ("could not listen on \"" + std::string(host) +
                      "\": not a numeric address, \"localhost\" or \"*\"",
                  status.error());
        EXPECT_FALSE(server->listening());
    }
}

TEST_F(ListenTest, AnAddressOfAnotherMachineFails) {
    const auto status = server->listen({{"192.0.2.1", 1883}});
    ASSERT_FALSE(status);
    EXPECT_NE(std::string::npos, status.error().find("\"192.0.2.1\", port 1883: "));
}

TEST_F(ListenTest, RelistenKeepsUnchangedListenersAndTheirWaitingClients) {
    port = occupy_port().second;
    const uint16_t other = occupy_port().second;
    ASSERT_TRUE(server->listen({{"127.0.0.1", port}}));
    Client waiting(port);  // in the kernel's queue: a reopened listener would reset it
    ASSERT_TRUE(server->listen({{"127.0.0.1", other}, {"127.0.0.1", port}}));
    ASSERT_TRUE(run_until([&] { return handler.accepted.size() == 1; }));
    EXPECT_TRUE(connects_to("127.0.0.1", other));
    ASSERT_TRUE(server->listen({{"127.0.0.1", port}}));
    EXPECT_FALSE(connects_to("127.0.0.1", other));
    EXPECT_TRUE(comes_to_rest());
}

TEST_F(ListenTest, FromStarToOneAddressAndBack) {
    port = occupy_port().second;
    ASSERT_TRUE(server->listen({{"*", port}}));
    auto status = server->listen({{"127.0.0.1", port}});
    ASSERT_TRUE(status) << status.error();
    EXPECT_TRUE(connects_to("127.0.0.1", port));
    EXPECT_FALSE(connects_to("127.0.0.2", port));
    status = server->listen({{"*", port}});
    ASSERT_TRUE(status) << status.error();
    EXPECT_TRUE(connects_to("127.0.0.2", port));
}

TEST_F(ListenTest, RepeatedAddressesAreOne) {
    port = occupy_port().second;
    const auto status =
        server->listen({{"localhost", port}, {"127.0.0.1", port}, {"127.0.0.1", port}});
    EXPECT_TRUE(status) << status.error();
}

TEST_F(ListenTest, ListeningToNothingIsNoError) {
    port = occupy_port().second;
    ASSERT_TRUE(server->listen({{"127.0.0.1", port}}));
    EXPECT_TRUE(server->listen({}));
    EXPECT_FALSE(server->listening());
}

TEST_F(ListenTest, APortWithConnectionsInTimeWaitCanBeListenedToAgain) {
    port = occupy_port().second;
    ASSERT_TRUE(server->listen({{"127.0.0.1", port}}));
    auto [client, id] = connected();
    server->close(id);  // ours is the side that waits
    ASSERT_TRUE(run_until([&, &peer = client] {
        peer.receive();
        if (peer.ended) peer.close();
        return server->connections() == 0;
    }));
    server = std::make_unique<Server>(Limits{});
    const auto status = server->listen({{"127.0.0.1", port}});
    EXPECT_TRUE(status) << status.error();
}

TEST_F(ListenTest, AcceptedSocketsDelayNothing) {
    Poller poller;
    Listeners listeners(poller);
    port = occupy_port().second;
    ASSERT_TRUE(listeners.listen({{"127.0.0.1", port}}));
    Client client(port);
    ASSERT_TRUE(readable(poller.fd(), 5000));
    ASSERT_EQ(1u, poller.poll());
    EXPECT_EQ(Listeners::kTokenSlot, poller.event(0).token >> 32);
    listeners.mark_ready(static_cast<uint32_t>(poller.event(0).token));
    Socket accepted(listeners.accept().fd);
    ASSERT_GE(accepted.fd(), 0);
    int no_delay = 0;
    socklen_t length = sizeof no_delay;
    getsockopt(accepted.fd(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &length);
    EXPECT_EQ(1, no_delay);
    EXPECT_NE(0, fcntl(accepted.fd(), F_GETFL) & O_NONBLOCK);
    EXPECT_NE(0, fcntl(accepted.fd(), F_GETFD) & FD_CLOEXEC);
    EXPECT_EQ(-1, listeners.accept().fd);
    EXPECT_EQ(EAGAIN, errno);
}

TEST(PeerAddressTest, MappedAddressesAreShownAsIPv4) {
    sockaddr_storage storage{};
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(4242);
    inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr);
    PeerAddress peer = peer_address(storage);
    EXPECT_EQ("10.1.2.3", peer.address);
    EXPECT_EQ(4242, peer.port);
    EXPECT_FALSE(peer.loopback);
    inet_pton(AF_INET6, "::ffff:127.9.9.9", &v6.sin6_addr);
    EXPECT_TRUE(peer_address(storage).loopback);
    inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
    EXPECT_EQ("2001:db8::1", peer_address(storage).address);
}

}  // namespace
}  // namespace pgmqtt::net::test
