// The invariant: no acknowledgement before what it promises is stored.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class PendingTest : public BrokerTest {
   protected:
    void sinks(std::vector<SinkRoute> routes) { broker_->set_sinks(std::move(routes)); }
};

TEST_F(PendingTest, ARetainedPublishIsAcknowledgedWhenStored) {
    Client& subscriber = connect("s");
    subscriber.subscribe("t", Qos::k1);
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1, true);
    EXPECT_TRUE(publisher.nothing());
    EXPECT_EQ(subscriber.payloads().size(), 1u);
    ASSERT_EQ(stored_[1].size(), 1u);
    EXPECT_EQ(stored_[1][0].kind, StoreKind::kRetain);
    EXPECT_EQ(stored_[1][0].topic, "t");
    EXPECT_EQ(stored_[1][0].payload, "x");
    EXPECT_EQ(counters().pending, 1u);
    store_done(1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(PendingTest, NoMatchingSubscribersIsRememberedWhileItWaits) {
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1, true);
    store_done(1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kNoMatchingSubscribers);
}

TEST_F(PendingTest, ASinkPublishIsAcknowledgedWhenItsRowsAre) {
    sinks({{1, "a/+", Qos::k1}});
    Client& publisher = connect("p");
    publisher.publish("a/b", "x", Qos::k1);
    EXPECT_TRUE(publisher.nothing());
    ASSERT_EQ(sunk_.size(), 1u);
    EXPECT_EQ(sunk_[0].topic, "a/b");
    EXPECT_EQ(sunk_[0].client_id, "p");
    EXPECT_EQ(sunk_[0].qos, Qos::k1);
    sink_done(sunk_[0].token + 100);  // of nobody
    EXPECT_TRUE(publisher.nothing());
    sink_done(sunk_[0].token);
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kSuccess);
    sink_done(sunk_[0].token);  // twice
    EXPECT_TRUE(publisher.nothing());
}

TEST_F(PendingTest, ASinkIsASubscriberOnceForAllItsFilters) {
    sinks({{1, "a/#", Qos::k1},
           {1, "+/b", Qos::k1},
           {2, "a/b", Qos::k1},
           {3, "#", Qos::k1},
           {4, "x", Qos::k1}});
    Client& publisher = connect("p");
    publisher.publish("a/b", "x", Qos::k1);
    ASSERT_EQ(sunk_.size(), 1u);
    std::sort(sunk_[0].sinks.begin(), sunk_[0].sinks.end());
    EXPECT_EQ(sunk_[0].sinks, (std::vector<uint32_t>{1, 2, 3}));
    publish_from_sql(PublishSource::kOutbox, 1, {{.topic = "$a/b", .payload = ""}});
    EXPECT_EQ(sunk_.size(), 1u);  // the $ rule holds for sinks
    sinks({});
    publisher.publish("a/b", "x", Qos::k1);
    EXPECT_EQ(sunk_.size(), 1u);
    // The message that the removed sink got still completes, first in order.
    sink_done(sunk_[0].token);
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 2);
}

TEST_F(PendingTest, TheWorstReasonOfStoreAndSinkWins) {
    sinks({{1, "t", Qos::k1}});
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1, true);
    sink_done(sunk_[0].token, ReasonCode::kPayloadFormatInvalid, "not JSON");
    EXPECT_TRUE(publisher.nothing());
    store_done(1);
    auto puback = publisher.next<mqtt::Puback>();
    EXPECT_EQ(puback.reason, ReasonCode::kPayloadFormatInvalid);
    EXPECT_EQ(puback.properties.reason_string, "not JSON");
    EXPECT_EQ(counters().publishes_refused, 1u);
}

// The fuzzer found it: a client closes for a code that is not one [MQTT-3.4.2-1].
TEST_F(PendingTest, AReasonThatIsNoneBecomesUnspecifiedError) {
    sinks({{1, "t", Qos::k1}});
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1);
    sink_done(sunk_[0].token, static_cast<ReasonCode>(0xF7));
    EXPECT_EQ(publisher.next<mqtt::Puback>().reason, ReasonCode::kUnspecifiedError);
}

TEST_F(PendingTest, ReasonStringsAreLeftOutWhereTheyMayNotGo) {
    sinks({{1, "t", Qos::k1}});
    ConnectOptions quiet;
    quiet.properties.request_problem_information = 0;
    ConnectOptions tiny;
    tiny.properties.maximum_packet_size = 40;
    Client* clients[] = {&connect("a", quiet), &connect("b", tiny), &connect("c", Version::k311)};
    for (Client* client : clients) {
        client->publish("t", "x", Qos::k1);
        sink_done(sunk_.back().token, ReasonCode::kImplementationSpecificError,
                  std::string(100, 'r'));
        auto puback = client->next<mqtt::Puback>();
        EXPECT_EQ(puback.properties.reason_string, std::nullopt);  // [MQTT-3.1.2-29]
        auto reason = client->version() == Version::k5 ? ReasonCode::kImplementationSpecificError
                                                       : ReasonCode::kSuccess;
        EXPECT_EQ(puback.reason, reason);
    }
}

TEST_F(PendingTest, AcknowledgementsKeepTheOrderOfThePublishes) {
    sinks({{1, "sink", Qos::k1}});
    Client& publisher = connect("p");
    publisher.publish("sink", "1", Qos::k1);
    publisher.publish("sink", "2", Qos::k1);
    publisher.publish("free", "3", Qos::k1);
    publisher.publish("free", "4", Qos::k1, true);
    sink_done(sunk_[1].token);
    store_done(1);
    EXPECT_TRUE(publisher.nothing());  // [MQTT-4.6.0-2]
    sink_done(sunk_[0].token);
    for (uint16_t id = 1; id <= 4; ++id) EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, id);
}

TEST_F(PendingTest, OnePublisherDoesNotWaitForAnother) {
    sinks({{1, "sink", Qos::k1}});
    connect("slow").publish("sink", "x", Qos::k1);
    Client& other = connect("other");
    other.publish("t", "x", Qos::k1);
    EXPECT_EQ(other.next<mqtt::Puback>().packet_id, 1);
}

TEST_F(PendingTest, APublisherThatLeavesDoesNotTakeItsMessagesAlong) {
    sinks({{1, "t", Qos::k1}});
    Client& publisher = connect("p");
    publisher.publish("t", "1", Qos::k1, true);
    publisher.publish("t", "2", Qos::k1);
    publisher.drop();
    EXPECT_EQ(counters().pending, 2u);
    sink_done(sunk_[0].token);
    sink_done(sunk_[1].token);
    store_done(1);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(PendingTest, AQos0SinkDelaysNoAcknowledgement) {
    sinks({{1, "t", Qos::k0}});
    Client& publisher = connect("p");
    publisher.publish("t", "x", Qos::k1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(counters().pending, 1u);  // but is bounded like any other
    sink_done(sunk_[0].token);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(PendingTest, Qos0ToASinkIsPendingUntilDone) {
    sinks({{1, "t", Qos::k1}});
    connect("p").publish("t", "x", Qos::k0, true);
    EXPECT_EQ(counters().pending, 1u);
    sink_done(sunk_[0].token);
    EXPECT_EQ(counters().pending, 1u);
    store_done(1);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(PendingTest, AStoreThatComesBackGetsEverythingUnacknowledgedAgain) {
    Client& publisher = connect("p");
    for (const char* topic : {"a", "b", "c"}) publisher.publish(topic, "x", Qos::k1, true);
    EXPECT_EQ(stored_.size(), 3u);
    store_done(1);
    broker_->resend_store();
    run();
    ASSERT_EQ(stored_[4].size(), 2u);
    EXPECT_EQ(stored_[4][0].topic, "b");
    EXPECT_EQ(stored_[4][1].topic, "c");
    publisher.publish("d", "x", Qos::k1, true);
    broker_->resend_store();
    run();
    ASSERT_EQ(stored_[6].size(), 3u);
    EXPECT_EQ(stored_[6][2].topic, "d");
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 1);
    EXPECT_TRUE(publisher.nothing());
    store_done(6);
    for (uint16_t id = 2; id <= 4; ++id) EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, id);
    EXPECT_EQ(counters().pending, 0u);
    broker_->resend_store();
    EXPECT_TRUE(broker_->turn().store.empty());
}

TEST_F(PendingTest, ASinkThatComesBackGetsWhatIsNotDoneUnderTheSameTokens) {
    sinks({{1, "t", Qos::k1}});
    Client& publisher = connect("p");
    for (const char* payload : {"1", "2", "3"}) publisher.publish("t", payload, Qos::k1);
    sink_done(sunk_[1].token);
    auto first = sunk_;
    sunk_.clear();
    broker_->resend_sink();
    // An answer of the worker that died was still on its way.
    broker_->sink_done({first[0].token, ReasonCode::kSuccess, {}}, now_);
    run();
    ASSERT_EQ(sunk_.size(), 2u);
    EXPECT_EQ(sunk_[0].token, first[0].token);
    EXPECT_EQ(sunk_[1].token, first[2].token);
    EXPECT_EQ(sunk_[1].payload, "3");
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 2);
    EXPECT_TRUE(publisher.nothing());
    sunk_.clear();
    broker_->resend_sink();
    run();
    ASSERT_EQ(sunk_.size(), 1u);
    sink_done(sunk_[0].token);
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 3);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(PendingTest, RecordsOfOneTurnMakeOneBatch) {
    std::string bytes;
    for (uint16_t id = 1; id <= 10; ++id) {
        std::string topic = "t" + std::to_string(id);
        mqtt::Publish publish;
        publish.topic = topic;
        publish.payload = "x";
        publish.qos = Qos::k1;
        publish.retain = true;
        publish.packet_id = id;
        mqtt::encode(publish, Version::k5, bytes);
    }
    Client& publisher = connect("p");
    publisher.send_bytes(bytes);
    EXPECT_EQ(stored_.size(), 1u);
    EXPECT_EQ(stored_[1].size(), 10u);
    store_done(1);
    EXPECT_EQ(publisher.packets_waiting(), 10u);
}

TEST_F(PendingTest, TooMuchPendingPausesThePublishersAndHalfResumesThem) {
    config_.max_pending_bytes = 10000;
    config_.max_inflight = 1000;
    start();
    sinks({{1, "t", Qos::k1}});
    Client& five = connect("five");
    Client& older = connect("older", Version::k311);
    Client& other = connect("other");
    for (int i = 0; i < 50; ++i) {
        five.publish("t", std::string(500, 'x'), Qos::k1);
        older.publish("t", std::string(500, 'x'), Qos::k0);
    }
    EXPECT_TRUE(broker_->paused(five.id()));
    EXPECT_TRUE(broker_->paused(older.id()));
    EXPECT_GT(five.bytes_not_consumed(), 0u);
    EXPECT_LT(sunk_.size(), 25u);
    EXPECT_EQ(counters().pauses, 2u);
    other.publish("t2", "x", Qos::k1);  // feeds nothing that is full
    EXPECT_EQ(other.next<mqtt::Puback>().packet_id, 1);
    for (size_t i = 0; i < sunk_.size(); ++i) sink_done(sunk_[i].token);
    EXPECT_EQ(sunk_.size(), 100u);  // nothing is lost
    EXPECT_EQ(five.bytes_not_consumed(), 0u);
    EXPECT_EQ(five.packets_waiting(), 50u);
    EXPECT_FALSE(broker_->paused(older.id()));
}

TEST_F(PendingTest, APausedPublisherIsNotTimedOut) {
    config_.max_pending_bytes = 10;
    start();
    sinks({{1, "t", Qos::k1}});
    ConnectOptions options;
    options.keep_alive = 10;
    Client& publisher = connect("p", options);
    publisher.publish("t", "x", Qos::k1);
    for (int i = 0; i < 100; ++i) advance(10s);
    EXPECT_FALSE(publisher.closed());
    sink_done(sunk_[0].token);
    EXPECT_FALSE(broker_->paused(publisher.id()));
    advance(30s);
    EXPECT_TRUE(publisher.closed());
}

TEST_F(PendingTest, MoreThanTheReceiveMaximumEndsA5ClientAndPausesAnOlderOne) {
    config_.max_inflight = 3;
    start();
    sinks({{1, "t", Qos::k1}});
    Client& five = connect("five");
    Client& older = connect("older", Version::k311);
    for (int i = 0; i < 3; ++i) {
        five.publish("t", "x", Qos::k1);
        older.publish("t", "x", Qos::k1);
    }
    EXPECT_FALSE(five.closed());
    EXPECT_TRUE(broker_->paused(older.id()));
    five.publish("t", "x", Qos::k0);  // does not count
    EXPECT_FALSE(five.closed());
    five.publish("t", "x", Qos::k1);
    EXPECT_EQ(five.next<mqtt::Disconnect>().reason, ReasonCode::kReceiveMaximumExceeded);
    older.publish("t", "4", Qos::k1);
    EXPECT_GT(older.bytes_not_consumed(), 0u);
    for (size_t i = 0; i < sunk_.size(); ++i) sink_done(sunk_[i].token);
    EXPECT_EQ(older.packets_waiting(), 4u);
    EXPECT_EQ(counters().pending, 0u);
}

TEST_F(PendingTest, PublishesFromSqlAreDoneWhenRoutedStoredAndSunk) {
    sinks({{1, "sink", Qos::k1}});
    Client& subscriber = connect("s");
    subscriber.subscribe("#", Qos::k1);
    publish_from_sql(PublishSource::kCdc, 5,
                     {{.topic = "a", .payload = "1", .qos = Qos::k1},
                      {.topic = "a", .payload = "2", .qos = Qos::k2}});
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{5});
    EXPECT_EQ(subscriber.payloads(), (std::vector<std::string>{"1", "2"}));
    publish_from_sql(PublishSource::kOutbox, 7,
                     {{.topic = "sink", .payload = "x", .qos = Qos::k1, .retain = true}});
    publish_from_sql(PublishSource::kOutbox, 8, {{.topic = "a", .payload = "x"}});
    publish_from_sql(PublishSource::kOutbox, 9, {});
    EXPECT_TRUE(outbox_done_.empty());
    EXPECT_EQ(sunk_.at(0).client_id, "");
    store_done(1);
    EXPECT_TRUE(outbox_done_.empty());
    sink_done(sunk_[0].token, ReasonCode::kImplementationSpecificError);
    EXPECT_EQ(outbox_done_, (std::vector<uint64_t>{7, 8, 9}));  // in order
    EXPECT_EQ(counters().publishes_from_sql, 4u);
    EXPECT_EQ(counters().publishes_in, 0u);
}

TEST_F(PendingTest, AnExpiredPublishFromSqlIsDroppedAndDone) {
    Client& subscriber = connect("s");
    subscriber.subscribe("#");
    MessageView late{.topic = "a", .payload = "late"};
    late.expires_at = now_.wall - 1s;
    MessageView soon{.topic = "a", .payload = "soon"};
    soon.expires_at = now_.wall + 2500ms;
    publish_from_sql(PublishSource::kCdc, 1, {late, soon});
    auto publish = subscriber.next<mqtt::Publish>();
    EXPECT_EQ(publish.payload, "soon");
    EXPECT_EQ(publish.properties.message_expiry_interval, 3u);
    EXPECT_TRUE(subscriber.nothing());
    EXPECT_EQ(counters().dropped_expired, 1u);
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1});
}

TEST_F(PendingTest, AMalformedBatchFromSqlIsReported) {
    std::string bytes = batch_done(BatchKind::kStore, 1);
    BatchReader reader(bytes);
    PublishRecord record;
    EXPECT_FALSE(reader.next(record));
    BatchWriter writer(BatchKind::kPublish);
    writer.add(PublishRecord{{.topic = "a", .payload = "x"}});
    std::string cut(writer.finish(1));
    cut.resize(cut.size() - 1);
    BatchReader damaged(cut);
    broker_->publish(PublishSource::kCdc, 1, damaged, now_);
    run();
    EXPECT_EQ(log_.size(), 1u);
}

// Persistent sessions: for each packet, what must be stored before it leaves.
class StoredFirstTest : public PendingTest {
   protected:
    static ConnectOptions persistent() {
        ConnectOptions options;
        options.clean_start = false;
        options.properties.session_expiry_interval = 3600;
        return options;
    }
};

TEST_F(StoredFirstTest, ConnackSubackAndUnsuback) {
    Client& client = dial("c", persistent());
    EXPECT_TRUE(client.nothing());
    mqtt::Subscribe subscribe;
    subscribe.packet_id = 1;
    subscribe.subscriptions.push_back({.filter = "t", .qos = Qos::k1});
    client.send(subscribe);  // not read before CONNACK
    store_some(1);
    run();
    client.next<mqtt::Connack>();
    EXPECT_TRUE(client.nothing());
    EXPECT_EQ(store_.sessions(), 1u);
    store_some(1);
    run();
    client.next<mqtt::Suback>();
    EXPECT_EQ(store_.subscriptions(), 1u);
    mqtt::Unsubscribe unsubscribe;
    unsubscribe.packet_id = 2;
    unsubscribe.filters = {"t", "u"};
    client.send(unsubscribe);
    EXPECT_TRUE(client.nothing());
    store_all();
    EXPECT_EQ(client.next<mqtt::Unsuback>().codes, (std::vector<uint8_t>{0, 0x11}));
    unsubscribe.filters = {"u"};
    client.send(unsubscribe);  // changes nothing
    client.next<mqtt::Unsuback>();
}

TEST_F(StoredFirstTest, EveryStepOfQos1And2) {
    auto_store_ = true;
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k2);
    Client& publisher = connect("p", persistent());
    auto_store_ = false;

    publisher.publish_as(1, "t", "1", Qos::k1);
    EXPECT_TRUE(publisher.nothing());
    EXPECT_EQ(counters().pending, 1u);
    // The publisher will send it again if it is not stored.
    uint16_t first = subscriber.next<mqtt::Publish>().packet_id;
    store_all();
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 1);
    EXPECT_EQ(store_.messages(), 1u);
    subscriber.puback(first);
    store_all();
    EXPECT_EQ(store_.messages(), 0u);

    publisher.publish_as(2, "t", "2", Qos::k2);
    EXPECT_TRUE(publisher.nothing());
    EXPECT_TRUE(subscriber.nothing());
    store_all();
    EXPECT_EQ(publisher.next<mqtt::Pubrec>().packet_id, 2);
    EXPECT_EQ(store_.received(), 1u);
    publisher.pubrel(2);
    publisher.pubrel(2);
    EXPECT_TRUE(publisher.nothing());
    store_all();
    EXPECT_EQ(publisher.next<mqtt::Pubcomp>().packet_id, 2);
    EXPECT_TRUE(publisher.nothing());
    EXPECT_EQ(store_.received(), 0u);

    uint16_t id = subscriber.next<mqtt::Publish>().packet_id;
    subscriber.pubrec(id);
    subscriber.pubrec(id);
    subscriber.pubcomp(id);  // of a PUBREL that was not sent
    EXPECT_TRUE(subscriber.nothing());
    store_all();
    EXPECT_EQ(subscriber.next<mqtt::Pubrel>().packet_id, id);
    EXPECT_TRUE(subscriber.nothing());
    subscriber.pubcomp(id);
    store_all();
    EXPECT_EQ(store_.deliveries() + store_.messages(), 0u);
}

TEST_F(StoredFirstTest, SqlIsToldWhenTheQueueIsStored) {
    auto_store_ = true;
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k1);
    subscriber.drop();
    auto_store_ = false;
    publish_from_sql(PublishSource::kCdc, 1, {{.topic = "t", .payload = "x", .qos = Qos::k1}});
    EXPECT_TRUE(publishes_done_.empty());
    store_all();
    EXPECT_EQ(publishes_done_, std::vector<uint64_t>{1});
}

TEST_F(StoredFirstTest, AStoreWorkerThatComesBackGetsItAllAgain) {
    auto_store_ = true;
    Client& subscriber = connect("s", persistent());
    subscriber.subscribe("t", Qos::k2);
    Client& publisher = connect("p", persistent());
    auto_store_ = false;
    publisher.publish_as(1, "t", "1", Qos::k2);
    publisher.publish_as(2, "t", "2", Qos::k1);
    // It wrote the first, died before it said so, and never saw the second.
    store_.apply(unstored_.front().second);
    unstored_.clear();
    broker_->resend_store();
    run();
    EXPECT_TRUE(publisher.nothing());
    store_all();
    EXPECT_EQ(publisher.next<mqtt::Pubrec>().packet_id, 1);
    EXPECT_EQ(publisher.next<mqtt::Puback>().packet_id, 2);
    EXPECT_EQ(subscriber.next<mqtt::Publish>().payload, "1");
    EXPECT_EQ(subscriber.next<mqtt::Publish>().payload, "2");
    EXPECT_EQ(store_.deliveries(), 2u);
}

}  // namespace
}  // namespace pgmqtt::broker
