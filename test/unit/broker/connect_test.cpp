#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class ConnectTest : public BrokerTest {};

ConnectOptions with(Version version) {
    ConnectOptions options;
    options.version = version;
    return options;
}

TEST_F(ConnectTest, EachVersionIsAccepted) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        Client& client = connect("c", version);
        client.send(mqtt::Pingreq{});
        client.next<mqtt::Pingresp>();  // [MQTT-3.12.4-1]
        client.send(mqtt::Disconnect{});
        EXPECT_TRUE(client.closed());
        EXPECT_EQ(client.close_reason(), "");
    }
    EXPECT_EQ(counters().connects, 3u);
    EXPECT_EQ(counters().disconnects, 3u);
    EXPECT_EQ(counters().connections_lost, 0u);
    EXPECT_EQ(counters().clients, 0u);
}

TEST_F(ConnectTest, ConnackOf5AdvertisesWhatWorks) {
    config_.topic_alias_maximum = 17;
    config_.max_inflight = 33;
    config_.max_packet_size = 256 << 20;
    start();
    auto connack = dial("c").next<mqtt::Connack>();
    EXPECT_EQ(connack.properties.receive_maximum, 33);
    EXPECT_EQ(connack.properties.maximum_qos, std::nullopt);
    EXPECT_EQ(connack.properties.retain_available, std::nullopt);
    EXPECT_EQ(connack.properties.maximum_packet_size, 268435455u);
    EXPECT_EQ(connack.properties.topic_alias_maximum, 17);
    EXPECT_FALSE(connack.properties.shared_subscription_available.has_value());
    EXPECT_EQ(connack.properties.session_expiry_interval, std::nullopt);
    EXPECT_EQ(connack.properties.assigned_client_identifier, std::nullopt);
    EXPECT_EQ(connack.properties.server_keep_alive, std::nullopt);
}

TEST_F(ConnectTest, KeepAliveAboveTheMaximumIsCutAndTold) {
    config_.max_keep_alive = 60;
    start();
    for (uint16_t keep_alive : {uint16_t{0}, uint16_t{61}, uint16_t{60}}) {
        ConnectOptions options;
        options.keep_alive = keep_alive;
        auto connack = dial("c" + std::to_string(keep_alive), options).next<mqtt::Connack>();
        auto told = keep_alive == 60 ? std::nullopt : std::optional<uint16_t>(60);
        EXPECT_EQ(connack.properties.server_keep_alive, told);
    }
    advance(90s);
    for (Client& client : clients_) EXPECT_TRUE(client.closed());
}

TEST_F(ConnectTest, EmptyClientIdOf5IsAssignedAndUnique) {
    std::string first(*dial("").next<mqtt::Connack>().properties.assigned_client_identifier);
    std::string second(*dial("").next<mqtt::Connack>().properties.assigned_client_identifier);
    EXPECT_NE(first, second);
    EXPECT_FALSE(first.empty());
    EXPECT_EQ(counters().clients, 2u);
}

TEST_F(ConnectTest, EmptyClientIdOf311NeedsACleanSession) {
    EXPECT_EQ(dial("", with(Version::k311)).next<mqtt::Connack>().code, 0);
    ConnectOptions options = with(Version::k311);
    options.clean_start = false;
    Client& refused = dial("", options);
    EXPECT_EQ(refused.next<mqtt::Connack>().code, 2);  // [MQTT-3.1.3-8]
    EXPECT_TRUE(refused.closed());
    EXPECT_EQ(counters().connects_refused, 1u);
}

TEST_F(ConnectTest, EmptyClientIdOf31IsRefused) {
    EXPECT_EQ(dial("", with(Version::k31)).next<mqtt::Connack>().code, 2);
}

TEST_F(ConnectTest, LongAndStrangeClientIdsAreAccepted) {
    for (std::string id : {std::string(65535, 'x'), std::string("a/+#'; drop table\n")}) {
        EXPECT_EQ(dial(id, with(Version::k31)).next<mqtt::Connack>().code, 0);
    }
}

TEST_F(ConnectTest, UnknownLevelIsAnsweredInItsWay) {
    struct Row {
        uint8_t level;
        std::string answer;
    };
    const Row rows[] = {{0, {0x20, 2, 0, 1}},
                        {2, {0x20, 2, 0, 1}},
                        {6, {0x20, 3, 0, char(0x84), 0}},
                        {0x7F, {0x20, 3, 0, char(0x84), 0}},
                        {0x84, {0x20, 2, 0, 1}}};  // a bridge, which falls back
    for (const Row& row : rows) {
        std::string bytes;
        mqtt::encode(connect_packet("c", with(Version::k311)), Version::k311, bytes);
        bytes[8] = static_cast<char>(row.level);
        Client& client = accept(row.answer.size() == 5 ? Version::k5 : Version::k311);
        client.send_bytes(bytes);
        auto connack = client.next<mqtt::Connack>();
        EXPECT_EQ(connack.code, static_cast<uint8_t>(row.answer[3])) << int{row.level};
        EXPECT_TRUE(client.closed());  // [MQTT-3.1.2-2]
    }
}

TEST_F(ConnectTest, AnythingElseFirstClosesAtTheFirstByte) {
    for (char first : {'\x30', '\xC0', '\xE0', '\x00', 'G'}) {
        Client& client = accept();
        client.send_bytes(std::string(1, first));  // [MQTT-3.1.0-1]
        EXPECT_TRUE(client.closed());
        EXPECT_TRUE(client.nothing());
    }
    EXPECT_EQ(counters().malformed, 5u);
}

TEST_F(ConnectTest, AnAnnouncedHugeConnectIsRefusedBeforeItIsBuffered) {
    Client& client = accept();
    client.send_bytes("\x10\xFF\xFF\xFF\x7F");
    client.send_bytes(ByteView("\0\4MQTT", 6));
    EXPECT_FALSE(client.closed());  // the next byte is the version, which knows an answer or not
    client.send_bytes("\4");
    EXPECT_TRUE(client.closed());
    EXPECT_TRUE(client.nothing());
}

TEST_F(ConnectTest, AConnectInSinglBytesWorks) {
    Client& client = accept();
    std::string bytes;
    mqtt::encode(connect_packet("c", {}), Version::k5, bytes);
    for (char byte : bytes) client.send_bytes({&byte, 1});
    EXPECT_EQ(client.next<mqtt::Connack>().code, 0);
}

TEST_F(ConnectTest, MalformedConnectOf5IsToldAndOf311Closed) {
    for (Version version : {Version::k311, Version::k5}) {
        std::string bytes;
        mqtt::encode(connect_packet("c", with(version)), version, bytes);
        bytes[9] = static_cast<char>(bytes[9] | 1);  // reserved flag [MQTT-3.1.2-3]
        Client& client = accept(version);
        client.send_bytes(bytes);
        if (version == Version::k5) {
            EXPECT_EQ(client.next<mqtt::Connack>().code, 0x81);
        }
        EXPECT_TRUE(client.nothing());
        EXPECT_TRUE(client.closed());
    }
}

TEST_F(ConnectTest, NothingBehindARefusedConnectIsProcessed) {
    Client& watcher = connect("w");
    watcher.subscribe("t");
    std::string bytes;
    ConnectOptions options = with(Version::k31);
    mqtt::encode(connect_packet("", options), Version::k31, bytes);
    mqtt::Publish publish;
    publish.topic = "t";
    mqtt::encode(publish, Version::k31, bytes);
    accept(Version::k31).send_bytes(bytes);  // [MQTT-3.1.4-6]
    EXPECT_TRUE(watcher.nothing());
}

TEST_F(ConnectTest, SecondConnectIsAProtocolError) {
    for (Version version : {Version::k31, Version::k311, Version::k5}) {
        Client& client = connect("c", version);
        client.send(connect_packet("c", with(version)));  // [MQTT-3.1.0-2]
        if (version == Version::k5) {
            EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kProtocolError);
        }
        EXPECT_TRUE(client.closed());
    }
}

TEST_F(ConnectTest, TakeOverDisconnectsTheOldClient) {
    Client& old5 = connect("c");
    Client& old311 = connect("c", Version::k311);
    EXPECT_EQ(old5.next<mqtt::Disconnect>().reason, ReasonCode::kSessionTakenOver);
    EXPECT_TRUE(old5.closed());
    EXPECT_NE(old5.close_reason().find("192.0.2.1:1001"), std::string::npos);
    Client& last = connect("c");  // [MQTT-3.1.4-3]
    EXPECT_TRUE(old311.closed());
    EXPECT_TRUE(old311.nothing());
    last.send(mqtt::Pingreq{});
    last.next<mqtt::Pingresp>();
    EXPECT_EQ(counters().takeovers, 2u);
    EXPECT_EQ(counters().clients, 1u);
}

TEST_F(ConnectTest, SubscriptionsDoNotSurviveTheConnection) {
    Client& first = connect("c");
    first.subscribe("t");
    Client& second = connect("c");
    connect("p").publish("t", "x");
    EXPECT_TRUE(second.nothing());
    EXPECT_EQ(counters().subscriptions, 0u);
}

TEST_F(ConnectTest, NoConnectInTimeCloses) {
    Client& silent = accept();
    Client& slow = accept();
    advance(9s);
    slow.send_bytes("\x10\x20");
    advance(999ms);
    EXPECT_FALSE(slow.closed());
    EXPECT_EQ(broker_->next_timer(), now_.mono + 1ms);
    advance(1ms);
    EXPECT_TRUE(silent.closed());
    EXPECT_TRUE(slow.closed());  // the time is for the packet, not for each byte
}

TEST_F(ConnectTest, TheConnectTimeoutDoesNotCountOurAuthentication) {
    auto_auth_ = false;
    Client& client = dial("c");
    advance(60s);
    EXPECT_FALSE(client.closed());
    broker_->authenticated(client.id(), {}, now_);
    run();
    EXPECT_EQ(client.next<mqtt::Connack>().code, 0);
}

TEST_F(ConnectTest, KeepAliveIsOneAndAHalf) {
    ConnectOptions options;
    options.keep_alive = 2;
    Client& client = connect("c", options);
    options.version = Version::k311;
    Client& older = connect("d", options);
    advance(2999ms);
    EXPECT_FALSE(client.closed());
    advance(1ms);  // [MQTT-3.1.2-22]
    EXPECT_EQ(client.next<mqtt::Disconnect>().reason, ReasonCode::kKeepAliveTimeout);
    EXPECT_TRUE(client.closed());
    EXPECT_TRUE(older.closed());
    EXPECT_TRUE(older.nothing());
    EXPECT_EQ(counters().keep_alive_timeouts, 2u);
    EXPECT_EQ(counters().connections_lost, 0u);
}

TEST_F(ConnectTest, AnyPacketKeepsAliveAndDeliveriesDoNot) {
    ConnectOptions options;
    options.keep_alive = 2;
    Client& active = connect("active", options);
    Client& passive = connect("passive", options);
    passive.subscribe("t");
    for (int i = 0; i < 10 && !passive.closed(); ++i) {
        active.publish("t", "x");
        advance(1s);
    }
    EXPECT_FALSE(active.closed());
    EXPECT_TRUE(passive.closed());
}

// [MQTT-3.1.2-22]
TEST_F(ConnectTest, ByteByByteAPacketKeepsNobodyAlive) {
    ConnectOptions options;
    options.keep_alive = 2;
    Client& client = connect("c", options);
    client.send_bytes(
        std::string("\x30\x7f\x00\x03"
                    "abc",
                    7));
    for (int i = 0; i < 29; ++i) {
        advance(100ms);
        client.send_bytes("x");
        ASSERT_FALSE(client.closed());
    }
    advance(100ms);
    EXPECT_TRUE(client.closed());
}

TEST_F(ConnectTest, ALargePacketOnASlowLineKeepsAlive) {
    ConnectOptions options;
    options.keep_alive = 2;
    Client& client = connect("c", options);
    std::string payload(20 << 10, 'x');
    std::string bytes;
    mqtt::Publish publish;
    publish.topic = "t";
    publish.payload = payload;
    mqtt::encode(publish, Version::k5, bytes);
    for (size_t at = 0; at < bytes.size(); at += 2 << 10) {
        client.send_bytes(bytes.substr(at, 2 << 10));
        advance(2s);
        ASSERT_FALSE(client.closed());
    }
    EXPECT_EQ(counters().publishes_in, 1u);
    advance(1s);
    EXPECT_TRUE(client.closed());
}

TEST_F(ConnectTest, TooLargeAConnectIsToldSoAsFarAsItsVersionKnowsHow) {
    config_.max_packet_size = 1000;
    start();
    std::string user(2000, 'u');
    for (Version version : {Version::k5, Version::k311}) {
        Client& client = accept(version);
        ConnectOptions options;
        options.version = version;
        mqtt::Connect packet = connect_packet("c", options);
        packet.username = user;
        std::string bytes;
        mqtt::encode(packet, version, bytes);
        for (size_t i = 0; i < 20; ++i) client.send_bytes(bytes.substr(i, 1));
        if (version == Version::k5) {
            EXPECT_EQ(client.next<mqtt::Connack>().code,
                      static_cast<uint8_t>(ReasonCode::kPacketTooLarge));
        }
        EXPECT_TRUE(client.nothing());
        EXPECT_TRUE(client.closed());
    }
}

// What is too large is not waited for, nor is anything of it kept: at most what says the version.
TEST_F(ConnectTest, TooLargeAConnectHoldsNoPlace) {
    constexpr ByteView kHeader("\x10\xff\xff\xff\x7f");
    for (ByteView beginning : {ByteView(), ByteView("\0", 1), ByteView("\0\4MQT", 5)}) {
        Client& client = accept(Version::k5);
        client.send_bytes(kHeader);
        advance(500ms);
        client.send_bytes(beginning);
        ASSERT_FALSE(client.closed());
        advance(499ms);
        ASSERT_FALSE(client.closed());
        advance(1ms);
        EXPECT_TRUE(client.closed());
        EXPECT_TRUE(client.nothing());
    }
    for (ByteView other : {ByteView("x"), ByteView("\0\4MQTT\4", 7), ByteView("\0\6MQ", 4)}) {
        Client& client = accept(Version::k5);
        client.send_bytes(kHeader);
        client.send_bytes(other);
        EXPECT_TRUE(client.closed());
        EXPECT_TRUE(client.nothing());
    }
}

TEST_F(ConnectTest, KeepAliveZeroNeverTimesOut) {
    Client& client = connect("c");
    advance(std::chrono::hours(1000));
    EXPECT_FALSE(client.closed());
    EXPECT_EQ(broker_->next_timer(), base::kNever);
}

TEST_F(ConnectTest, AJumpOfTheWallClockEndsNobody) {
    ConnectOptions options;
    options.keep_alive = 10;
    Client& client = connect("c", options);
    now_.wall += std::chrono::hours(24 * 3650);
    advance(1s);
    EXPECT_FALSE(client.closed());
}

TEST_F(ConnectTest, InputWaitsForAuthentication) {
    auto_auth_ = false;
    ConnectOptions options;
    options.properties.user_properties.push_back({"k", "v"});
    Client& client = dial("c", options);
    EXPECT_TRUE(broker_->paused(client.id()));
    client.send(mqtt::Pingreq{});
    EXPECT_EQ(client.bytes_not_consumed(), 2u);
    EXPECT_TRUE(client.nothing());
    ASSERT_EQ(auth_requests_.size(), 1u);
    EXPECT_EQ(auth_requests_[0].client_id, "c");
    EXPECT_FALSE(auth_requests_[0].has_username);
    broker_->authenticated(client.id(), {}, now_);
    run();
    EXPECT_EQ(client.next<mqtt::Connack>().code, 0);
    client.next<mqtt::Pingresp>();
    EXPECT_EQ(counters().pauses, 0u);
}

TEST_F(ConnectTest, AuthRequestCarriesUserNameAndPassword) {
    Client& client = accept();
    mqtt::Connect packet = connect_packet("c", {});
    packet.username = "user";
    packet.password = ByteView("\0\xFF", 2);
    client.send(packet);
    ASSERT_EQ(auth_requests_.size(), 1u);
    EXPECT_EQ(auth_requests_[0].username, "user");
    EXPECT_EQ(auth_requests_[0].password, std::string("\0\xFF", 2));
    EXPECT_EQ(auth_requests_[0].peer.address, "192.0.2.1");
}

TEST_F(ConnectTest, RefusedAuthenticationIsTold) {
    verdict_.reason = ReasonCode::kBadUserNameOrPassword;
    EXPECT_EQ(dial("c").next<mqtt::Connack>().code, 0x86);
    EXPECT_EQ(dial("c", with(Version::k311)).next<mqtt::Connack>().code, 4);
    verdict_.reason = ReasonCode::kNotAuthorized;
    EXPECT_EQ(dial("c", with(Version::k31)).next<mqtt::Connack>().code, 5);
    verdict_.reason = ReasonCode::kConnectionRateExceeded;
    EXPECT_EQ(dial("c").next<mqtt::Connack>().code, 0x9F);
    EXPECT_EQ(dial("c", with(Version::k311)).next<mqtt::Connack>().code, 3);
    EXPECT_EQ(counters().connects_refused, 5u);
    EXPECT_EQ(counters().clients, 0u);
}

TEST_F(ConnectTest, AVerdictForAConnectionThatLeftIsIgnored) {
    auto_auth_ = false;
    Client& client = dial("c");
    client.drop();
    broker_->authenticated(client.id(), {}, now_);
    run();
    EXPECT_EQ(counters().clients, 0u);
    EXPECT_EQ(counters().connections_lost, 0u);
}

TEST_F(ConnectTest, EnhancedAuthenticationIsRefused) {
    ConnectOptions options;
    options.properties.authentication_method = "SCRAM-SHA-256";
    Client& client = dial("c", options);
    EXPECT_EQ(client.next<mqtt::Connack>().code, 0x8C);
    EXPECT_TRUE(client.closed());
}

TEST_F(ConnectTest, AConnackOverTheClientsMaximumIsNotSent) {
    ConnectOptions options;
    options.properties.maximum_packet_size = 10;
    Client& client = dial("c", options);
    EXPECT_TRUE(client.nothing());
    EXPECT_TRUE(client.closed());
    EXPECT_EQ(counters().clients, 0u);
}

TEST_F(ConnectTest, ReloadedLimitsHoldForTheNextConnection) {
    Client& old = connect("old");
    config_.topic_alias_maximum = 0;
    config_.max_packet_size = 100;
    broker_->configure(config_);
    mqtt::Properties alias;
    alias.topic_alias = 5;
    old.publish("t", std::string(1000, 'x'), Qos::k1, false, alias);
    old.next<mqtt::Puback>();
    auto connack = dial("new").next<mqtt::Connack>();
    EXPECT_EQ(connack.properties.topic_alias_maximum, std::nullopt);
    EXPECT_EQ(connack.properties.maximum_packet_size, 100u);
}

TEST_F(ConnectTest, LogTextsAreEscapedAndCut) {
    Client& client = connect(std::string("\n\x1b[31m") + std::string(1000, 'x'));
    client.send_bytes(std::string("\xF0\x00", 2));
    EXPECT_TRUE(client.closed());
    EXPECT_LT(client.close_reason().size(), 250u);
    for (char byte : client.close_reason()) EXPECT_GE(byte, ' ');
    EXPECT_TRUE(log_.empty());  // the reason of the close is the one line
}

TEST_F(ConnectTest, ShutDownTellsEverybody) {
    Client& five = connect("five");
    Client& older = connect("older", Version::k311);
    Client& silent = accept();
    broker_->shut_down(now_);
    run();
    EXPECT_EQ(five.next<mqtt::Disconnect>().reason, ReasonCode::kServerShuttingDown);
    EXPECT_TRUE(older.closed());
    EXPECT_TRUE(silent.closed());
    EXPECT_EQ(counters().clients, 0u);
    EXPECT_TRUE(accept().closed());
}

}  // namespace
}  // namespace pgmqtt::broker
