// What SQL asks for of clients and sessions: done once, and done when the answer says so.
#include "broker_fixture.h"

namespace pgmqtt::broker {
namespace {

class CommandTest : public BrokerTest {
   protected:
    CommandTest() { auto_store_ = true; }

    static ConnectOptions persistent() {
        ConnectOptions options;
        options.clean_start = false;
        options.properties.session_expiry_interval = 3600;
        return options;
    }

    void command(uint64_t batch, std::vector<CommandRecord> records) {
        BatchWriter writer(BatchKind::kCommand);
        for (const CommandRecord& record : records) writer.add(record);
        std::string bytes(writer.finish(batch));
        BatchReader reader(bytes);
        broker_->carry_out(reader, now_);
        EXPECT_TRUE(reader.ok());
        run();
    }

    uint64_t batch_ = 0;

    static CommandRecord disconnect(uint64_t id) { return {.id = id, .client_id = "c"}; }
    static CommandRecord delete_session(uint64_t id) {
        return {.id = id, .action = CommandAction::kDeleteSession, .client_id = "c"};
    }
};

TEST_F(CommandTest, OneThatComesAgainSparesWhoHasConnectedSince) {
    for (bool deletes : {false, true}) {
        uint64_t id = deletes ? 10 : 0;
        auto make = deletes ? delete_session : disconnect;
        Client& first = dial("c", persistent());
        command(++batch_, {make(id + 1)});
        EXPECT_TRUE(first.closed());
        EXPECT_EQ(commands_done_, std::vector<uint64_t>{batch_});
        commands_done_.clear();
        Client& second = dial("c", persistent());
        // The store worker came back: with what it had not removed, and with others before it.
        command(++batch_, {make(id + 1)});
        EXPECT_FALSE(second.closed());
        command(++batch_, {{.id = id, .client_id = "somebody"}, make(id + 1)});
        EXPECT_FALSE(second.closed());
        EXPECT_EQ(commands_done_, (std::vector<uint64_t>{batch_ - 1, batch_}));
        command(++batch_, {make(id + 1), make(id + 2)});
        EXPECT_TRUE(second.closed());
        command(++batch_, {make(id + 3)});
        commands_done_.clear();
    }
}

TEST_F(CommandTest, ALongQueueIsWaitedFor) {
    connect("c", persistent()).subscribe("t", Qos::k1);
    clients_.back().drop();
    for (uint64_t i = 1; i <= 3000; ++i) {
        publish_from_sql(PublishSource::kOutbox, i,
                         {{.topic = "t", .payload = "x", .qos = Qos::k1}});
    }
    run();
    ASSERT_EQ(counters().queued, 3000u);
    auto_store_ = false;
    command(77, {delete_session(1)});
    ASSERT_EQ(counters().sessions, 1u);
    EXPECT_TRUE(commands_done_.empty());
    // The store worker came back meanwhile.
    command(78, {delete_session(1)});
    EXPECT_TRUE(commands_done_.empty());
    auto_store_ = true;
    for (int i = 0; i < 20 && counters().sessions > 0; ++i) {
        EXPECT_TRUE(commands_done_.empty());
        store_all();
        advance(1ms);
    }
    EXPECT_EQ(counters().sessions, 0u);
    EXPECT_EQ(commands_done_, std::vector<uint64_t>{78});
    EXPECT_TRUE(store_.empty());
}

TEST_F(CommandTest, ANewBrokerEndsWhatWasThereWhenItWasGiven) {
    connect("c", persistent()).drop();
    base::WallTime before = now_.wall - std::chrono::seconds(1);
    for (bool meant : {false, true}) {
        restart();
        CommandRecord record = delete_session(5);
        record.given_at = meant ? now_.wall : before;
        broker_->load(record, now_);
        run();
        EXPECT_EQ(counters().sessions, meant ? 0u : 1u);
    }
    // Then the store worker brings it.
    Client& later = connect("c", persistent());
    command(1, {delete_session(5)});
    EXPECT_FALSE(later.closed());
    EXPECT_EQ(commands_done_, std::vector<uint64_t>{1});
}

}  // namespace
}  // namespace pgmqtt::broker
