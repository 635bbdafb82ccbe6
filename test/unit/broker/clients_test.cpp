// What the broker says of each connected client, and how that travels.
#include <limits>

#include "broker/client_record.h"
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class ClientsTest : public BrokerTest {
   protected:
    std::vector<std::string> ids() {
        std::vector<std::string> found;
        uint32_t slot = 0;
        ClientRecord record;
        while (broker_->describe_client(slot, record, now_)) found.emplace_back(record.client_id);
        return found;
    }
    ClientRecord only() {
        uint32_t slot = 0;
        ClientRecord record;
        EXPECT_TRUE(broker_->describe_client(slot, record, now_));
        return record;
    }
};

TEST_F(ClientsTest, OnlyWhoIsConnectedIsShown) {
    EXPECT_EQ(ids(), std::vector<std::string>{});
    accept();  // says nothing yet
    auto_auth_ = false;
    dial("asks");
    auto_auth_ = true;
    Client& a = connect("a");
    connect("b");
    EXPECT_EQ(ids(), (std::vector<std::string>{"a", "b"}));
    a.drop();
    EXPECT_EQ(ids(), std::vector<std::string>{"b"});
}

TEST_F(ClientsTest, WhatTheyAgreedOn) {
    auto_store_ = true;
    verdict_.username = "alice";
    ConnectOptions options;
    options.clean_start = false;
    options.keep_alive = 60;
    options.properties.session_expiry_interval = 100;
    dial("a", options);
    ClientRecord record = only();
    EXPECT_EQ(record.username, "alice");
    EXPECT_EQ(record.address, "192.0.2.1");
    EXPECT_EQ(record.port, 1000);
    EXPECT_EQ(record.version, Version::k5);
    EXPECT_EQ(record.keep_alive, 60);
    EXPECT_FALSE(record.clean_start);
    EXPECT_EQ(record.session_expiry, 100u);
    EXPECT_EQ(record.connected_at, now_.wall);
}

TEST_F(ClientsTest, QueuedIsAllThatWaits) {
    auto_store_ = true;
    config_.max_inflight = 2;
    start();
    ConnectOptions options;
    options.clean_start = false;
    options.properties.session_expiry_interval = 100;
    connect("a", options).subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    for (int i = 0; i < 100; ++i) publisher.publish("t", "x", Qos::k1);
    uint32_t slot = 0;
    ClientRecord record;
    ASSERT_TRUE(broker_->describe_client(slot, record, now_));
    ASSERT_EQ(record.client_id, "a");
    EXPECT_EQ(record.queued, 98u);  // here or in the store
    EXPECT_EQ(record.queued, counters().queued);
}

TEST_F(ClientsTest, ServerKeepAliveIsWhatCounts) {
    config_.max_keep_alive = 30;
    start();
    ConnectOptions options;
    options.keep_alive = 60;
    connect("a", options);
    EXPECT_EQ(only().keep_alive, 30);
}

TEST_F(ClientsTest, WhatWentOver) {
    Client& client = connect("a");
    auto connected_at = now_.wall;
    client.subscribe("t", Qos::k1);
    now_.mono += 5s;
    now_.wall += 5s;
    client.publish("t", "x", Qos::k1);
    auto publish = client.next<mqtt::Publish>();
    client.next<mqtt::Puback>();
    now_.mono += 2s;
    now_.wall += 1h;  // somebody set the clock
    ClientRecord record = only();
    EXPECT_EQ(record.connected_at, connected_at);
    EXPECT_EQ(now_.wall - record.last_packet_at, 2s);
    EXPECT_EQ(record.subscriptions, 1u);
    EXPECT_EQ(record.messages_in, 1u);
    EXPECT_EQ(record.messages_out, 1u);
    EXPECT_EQ(record.inflight_out, 1u);
    EXPECT_EQ(record.inflight_in, 0u);
    EXPECT_EQ(record.bytes_in, counters().bytes_in);
    EXPECT_EQ(record.bytes_out, counters().bytes_out);
    EXPECT_EQ(record.dropped, 0u);
    EXPECT_FALSE(record.throttled);
    client.puback(publish.packet_id);
    EXPECT_EQ(only().inflight_out, 0u);
}

TEST_F(ClientsTest, WhatWaitsAndWhatWasDropped) {
    config_.max_inflight = 1;
    config_.max_queued_messages = 2;
    start();
    Client& slow = connect("slow");
    slow.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    for (int i = 0; i < 5; ++i) {
        publisher.publish("t", "12345", Qos::k1);
        publisher.next<mqtt::Puback>();
    }
    ClientRecord record = only();
    EXPECT_EQ(record.inflight_out, 1u);
    EXPECT_EQ(record.queued, 2u);
    EXPECT_GE(record.queued_bytes, 10u);
    EXPECT_EQ(record.dropped, 2u);
    EXPECT_EQ(record.dropped, counters().dropped_queue_full);
}

TEST_F(ClientsTest, WhoWaitsForTheStoreIsThrottled) {
    config_.max_pending_bytes = 10;
    start();
    Client& client = connect("a");
    client.publish("t", "more than ten bytes", Qos::k1, true);
    EXPECT_TRUE(only().throttled);
    EXPECT_EQ(only().inflight_in, 1u);
    store_done(last_batch_);
    EXPECT_FALSE(only().throttled);
    EXPECT_EQ(only().inflight_in, 0u);
}

TEST(ClientRecordTest, RoundTrip) {
    std::string long_id(65535, 'x');
    ClientRecord record{.client_id = long_id,
                        .username = "u",
                        .address = "::1",
                        .port = 65535,
                        .transport = TransportKind::kWss,
                        .version = Version::k31,
                        .connected_at = base::WallTime(std::chrono::microseconds(-1)),
                        .last_packet_at = base::WallTime::max(),
                        .keep_alive = 1,
                        .clean_start = false,
                        .session_expiry = UINT32_MAX,
                        .subscriptions = 1,
                        .inflight_out = 2,
                        .inflight_in = 3,
                        .queued = 4,
                        .queued_bytes = 5,
                        .messages_in = 6,
                        .messages_out = 7,
                        .bytes_in = 8,
                        .bytes_out = 9,
                        .dropped = UINT64_MAX,
                        .throttled = true};
    std::string bytes;
    encode(record, bytes);
    ClientRecord again;
    ASSERT_TRUE(decode(bytes, again));
    std::string twice;
    encode(again, twice);
    EXPECT_EQ(twice, bytes);
    EXPECT_EQ(again.client_id, long_id);
    EXPECT_EQ(again.last_packet_at, base::WallTime::max());
    EXPECT_EQ(again.dropped, UINT64_MAX);
    EXPECT_TRUE(again.throttled);
    for (size_t size : {size_t{0}, size_t{3}, bytes.size() - 1}) {
        EXPECT_FALSE(decode(base::ByteView(bytes).substr(0, size), again)) << size;
    }
    EXPECT_FALSE(decode(bytes + "x", again));
}

}  // namespace
}  // namespace pgmqtt::broker
