#include "broker/batch.h"

#include <gtest/gtest.h>

#include <random>

namespace pgmqtt::broker {
namespace {

MessageView sample() {
    return {.topic = "a/b",
            .payload = std::string_view("p\0q", 3),
            .qos = mqtt::Qos::k1,
            .retain = true,
            .properties = "props",
            .received_at = base::WallTime(std::chrono::microseconds(123456789)),
            .expires_at = base::WallTime(std::chrono::microseconds(-5))};
}

void expect_same(const MessageView& a, const MessageView& b) {
    EXPECT_EQ(a.topic, b.topic);
    EXPECT_EQ(a.payload, b.payload);
    EXPECT_EQ(a.qos, b.qos);
    EXPECT_EQ(a.retain, b.retain);
    EXPECT_EQ(a.properties, b.properties);
    EXPECT_EQ(a.received_at, b.received_at);
    EXPECT_EQ(a.expires_at, b.expires_at);
}

// On the heap and of exactly this size, for the sanitizer.
struct Exact {
    explicit Exact(ByteView bytes) : copy(bytes.begin(), bytes.end()) {}
    ByteView view() const { return {copy.data(), copy.size()}; }
    std::vector<char> copy;
};

template <class Record>
size_t read_all(BatchReader& reader) {
    Record record;
    size_t count = 0;
    while (reader.next(record)) ++count;
    return count;
}

std::string sample_batch(BatchKind kind) {
    BatchWriter writer(kind);
    for (int i = 0; i < 3; ++i) {
        switch (kind) {
            case BatchKind::kStore:
                writer.add(StoreRecord{StoreKind::kRetain, sample()});
                writer.add(StoreRecord{StoreKind::kUnretain, sample()});
                break;
            case BatchKind::kSink:
                writer.add(SinkRecord{7,
                                      {1, 2, 3},
                                      sample(),
                                      "client",
                                      "user",
                                      65535,
                                      true,
                                      1ull << 40,
                                      base::WallTime(std::chrono::microseconds(5))});
                break;
            case BatchKind::kPublish:
                writer.add(PublishRecord{sample()});
                break;
            default:
                writer.add(CompletionRecord{9, mqtt::ReasonCode::kPayloadFormatInvalid, "why"});
        }
    }
    return std::string(writer.finish(77));
}

size_t read_as(BatchKind kind, BatchReader& reader) {
    switch (kind) {
        case BatchKind::kStore:
            return read_all<StoreRecord>(reader);
        case BatchKind::kSink:
            return read_all<SinkRecord>(reader);
        case BatchKind::kPublish:
            return read_all<PublishRecord>(reader);
        default:
            return read_all<CompletionRecord>(reader);
    }
}

constexpr BatchKind kKinds[] = {BatchKind::kStore, BatchKind::kSink, BatchKind::kPublish,
                                BatchKind::kCompletion};

TEST(BatchTest, StoreRecordsComeBackInOrder) {
    std::string bytes = sample_batch(BatchKind::kStore);
    BatchReader reader(bytes);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(reader.kind(), BatchKind::kStore);
    EXPECT_EQ(reader.number(), 77u);
    EXPECT_EQ(reader.count(), 6u);
    StoreRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.kind, StoreKind::kRetain);
    expect_same(record.message, sample());
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.kind, StoreKind::kUnretain);
    EXPECT_EQ(record.message.topic, "a/b");
    EXPECT_EQ(record.message.payload, "");
}

TEST(BatchTest, SessionRecordsComeBack) {
    StoreRecord session{.kind = StoreKind::kSession, .session_id = 5};
    session.session = {.client_id = "c",
                       .username = "u",
                       .created_at = base::WallTime(std::chrono::microseconds(3)),
                       .expiry_interval = UINT32_MAX,
                       .will = sample(),
                       .will_delay = 9};
    StoreRecord subscription{.kind = StoreKind::kSubscribe, .session_id = 5};
    subscription.subscription = {"a/#", mqtt::Qos::k2, true, true, 2, 268435455};
    StoreRecord delivery{
        .kind = StoreKind::kDelivery, .session_id = 5, .message_id = 6, .sequence = 7};
    delivery.delivery = {DeliveryState::kReceivedByClient, true, mqtt::Qos::k2, true, "abcd"};
    StoreRecord received{.kind = StoreKind::kReceived, .session_id = 5, .packet_id = 65535};
    BatchWriter writer(BatchKind::kStore);
    for (const StoreRecord& record : {session, subscription, delivery, received})
        writer.add(record);
    Exact bytes(writer.finish(1));

    BatchReader reader(bytes.view());
    StoreRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.session_id, 5u);
    EXPECT_EQ(record.session.client_id, "c");
    EXPECT_EQ(record.session.username, "u");
    EXPECT_EQ(record.session.created_at, session.session.created_at);
    EXPECT_EQ(record.session.disconnected_at, base::WallTime::max());
    EXPECT_EQ(record.session.expiry_interval, UINT32_MAX);
    EXPECT_EQ(record.session.will_delay, 9u);
    expect_same(record.session.will, sample());
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.subscription.filter, "a/#");
    EXPECT_EQ(record.subscription.qos, mqtt::Qos::k2);
    EXPECT_TRUE(record.subscription.no_local && record.subscription.retain_as_published);
    EXPECT_EQ(record.subscription.retain_handling, 2);
    EXPECT_EQ(record.subscription.identifier, 268435455u);
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.message_id, 6u);
    EXPECT_EQ(record.sequence, 7u);
    EXPECT_EQ(record.delivery.state, DeliveryState::kReceivedByClient);
    EXPECT_EQ(record.delivery.subscription_identifiers, "abcd");
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.packet_id, 65535);
    EXPECT_FALSE(reader.next(record));
    EXPECT_TRUE(reader.ok());
}

TEST(BatchTest, RecordsOfTheQueueComeBack) {
    StoreRecord message{.kind = StoreKind::kMessage, .message = sample(), .message_id = 6};
    message.durability = Durability::kAsync;
    StoreRecord copy{.kind = StoreKind::kCopy, .message_id = 8, .source_id = 6};
    StoreRecord delivery{
        .kind = StoreKind::kDelivery, .session_id = 5, .message_id = 6, .sequence = 7};
    delivery.durability = Durability::kUnlogged;
    delivery.delivery.bytes = 12345;
    delivery.delivery.expires_at = base::WallTime(std::chrono::microseconds(99));
    StoreRecord moved{.kind = StoreKind::kMoved, .message_id = 77};
    BatchWriter writer(BatchKind::kStore);
    for (const StoreRecord& record : {message, copy, delivery, moved}) writer.add(record);
    Exact bytes(writer.finish(1));

    BatchReader reader(bytes.view());
    StoreRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.message_id, 6u);
    EXPECT_EQ(record.durability, Durability::kAsync);
    expect_same(record.message, sample());
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.message_id, 8u);
    EXPECT_EQ(record.source_id, 6u);
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.durability, Durability::kUnlogged);
    EXPECT_EQ(record.delivery.bytes, 12345u);
    EXPECT_EQ(record.delivery.expires_at, delivery.delivery.expires_at);
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.kind, StoreKind::kMoved);
    EXPECT_EQ(record.message_id, 77u);
    EXPECT_FALSE(reader.next(record));
    EXPECT_TRUE(reader.ok());
}

TEST(BatchTest, FetchesAndMovesComeBack) {
    BatchWriter fetch(BatchKind::kFetch);
    fetch.add(FetchRecord{7, Durability::kUnlogged});
    BatchWriter fetched(BatchKind::kFetched);
    fetched.add(FetchedRecord{7, true, sample()});
    fetched.add(FetchedRecord{8, false, {}});
    BatchWriter move(BatchKind::kMove);
    move.add(MoveRecord{Durability::kUnlogged, 9});

    Exact fetch_bytes(fetch.finish(1));
    BatchReader fetch_reader(fetch_bytes.view());
    FetchRecord wanted;
    ASSERT_TRUE(fetch_reader.next(wanted));
    EXPECT_EQ(wanted.message_id, 7u);
    EXPECT_EQ(wanted.durability, Durability::kUnlogged);
    Exact fetched_bytes(fetched.finish(2));
    BatchReader fetched_reader(fetched_bytes.view());
    FetchedRecord found;
    ASSERT_TRUE(fetched_reader.next(found));
    EXPECT_TRUE(found.found);
    expect_same(found.message, sample());
    ASSERT_TRUE(fetched_reader.next(found));
    EXPECT_EQ(found.message_id, 8u);
    EXPECT_FALSE(found.found);
    Exact move_bytes(move.finish(3));
    BatchReader move_reader(move_bytes.view());
    MoveRecord moved;
    ASSERT_TRUE(move_reader.next(moved));
    EXPECT_EQ(moved.up_to, 9u);
    EXPECT_FALSE(move_reader.next(moved));
    EXPECT_TRUE(move_reader.ok());
}

TEST(BatchTest, CommandsComeBack) {
    BatchWriter writer(BatchKind::kCommand);
    base::WallTime at{std::chrono::seconds(5)};
    writer.add(
        CommandRecord{9, CommandAction::kDisconnect, "c", mqtt::ReasonCode::kServerBusy, at});
    writer.add(CommandRecord{.action = CommandAction::kDeleteSession, .client_id = "d"});
    Exact bytes(writer.finish(2));
    BatchReader reader(bytes.view());
    CommandRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.id, 9u);
    EXPECT_EQ(record.given_at, at);
    EXPECT_EQ(record.action, CommandAction::kDisconnect);
    EXPECT_EQ(record.client_id, "c");
    EXPECT_EQ(record.reason, mqtt::ReasonCode::kServerBusy);
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.action, CommandAction::kDeleteSession);
    EXPECT_FALSE(reader.next(record));
    EXPECT_TRUE(reader.ok());
}

TEST(BatchTest, SinkRecordsKeepTokenSinksAndPublisher) {
    std::string bytes = sample_batch(BatchKind::kSink);
    BatchReader reader(bytes);
    SinkRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.token, 7u);
    EXPECT_EQ(record.sink_ids, (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_EQ(record.client_id, "client");
    EXPECT_EQ(record.username, "user");
    EXPECT_EQ(record.packet_id, 65535);
    EXPECT_TRUE(record.dup);
    EXPECT_EQ(record.session_id, 1ull << 40);
    EXPECT_EQ(record.session_created_at, base::WallTime(std::chrono::microseconds(5)));
    expect_same(record.message, sample());
}

TEST(BatchTest, CompletionsKeepReasonAndText) {
    std::string bytes = sample_batch(BatchKind::kCompletion);
    BatchReader reader(bytes);
    CompletionRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.token, 9u);
    EXPECT_EQ(record.reason, mqtt::ReasonCode::kPayloadFormatInvalid);
    EXPECT_EQ(record.reason_string, "why");
}

TEST(BatchTest, PublishRecordsComeBack) {
    std::string bytes = sample_batch(BatchKind::kPublish);
    BatchReader reader(bytes);
    PublishRecord record;
    ASSERT_TRUE(reader.next(record));
    expect_same(record.message, sample());
}

TEST(BatchTest, ClearForgetsTheRecordsAndFinishMayBeCalledTwice) {
    BatchWriter writer(BatchKind::kPublish);
    writer.add(PublishRecord{sample()});
    writer.clear();
    EXPECT_TRUE(writer.empty());
    writer.add(PublishRecord{sample()});
    std::string first(writer.finish(1));
    EXPECT_EQ(first, std::string(writer.finish(1)));
    writer.add(PublishRecord{sample()});
    BatchReader reader(writer.finish(2));
    EXPECT_EQ(read_all<PublishRecord>(reader), 2u);
    EXPECT_TRUE(reader.ok());
}

TEST(BatchTest, EncodedRecordsCanBeAddedAgain) {
    BatchWriter first(BatchKind::kPublish);
    first.add(PublishRecord{sample()});
    first.add(PublishRecord{sample()});
    BatchWriter second(BatchKind::kPublish);
    second.add_encoded(first.records(), first.count());
    second.add(PublishRecord{sample()});
    BatchReader reader(second.finish(3));
    EXPECT_EQ(read_all<PublishRecord>(reader), 3u);
    EXPECT_TRUE(reader.ok());
}

TEST(BatchTest, DoneIsAHeaderOnly) {
    std::string bytes = batch_done(BatchKind::kPublishDone, 12);
    BatchReader reader(bytes);
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(reader.kind(), BatchKind::kPublishDone);
    EXPECT_EQ(reader.number(), 12u);
    EXPECT_EQ(reader.count(), 0u);
}

TEST(BatchTest, EveryTruncationIsNoticed) {
    for (BatchKind kind : kKinds) {
        std::string bytes = sample_batch(kind);
        BatchReader whole(bytes);
        size_t records = read_as(kind, whole);
        EXPECT_TRUE(whole.ok());
        for (size_t size = 0; size < bytes.size(); ++size) {
            Exact cut(ByteView(bytes).substr(0, size));
            BatchReader reader(cut.view());
            EXPECT_LT(read_as(kind, reader), records);
            EXPECT_FALSE(reader.ok()) << size;
        }
    }
}

TEST(BatchTest, BytesBehindTheLastRecordAreNoticed) {
    for (BatchKind kind : kKinds) {
        std::string bytes = sample_batch(kind) + "x";
        BatchReader reader(bytes);
        read_as(kind, reader);
        EXPECT_FALSE(reader.ok());
    }
}

TEST(BatchTest, ARecordOfTheWrongKindIsNotRead) {
    std::string bytes = sample_batch(BatchKind::kPublish);
    BatchReader reader(bytes);
    SinkRecord record;
    EXPECT_FALSE(reader.next(record));
    EXPECT_FALSE(reader.ok());
}

TEST(BatchTest, ABatchOfAnotherFormatIsNotRead) {
    std::string bytes = sample_batch(BatchKind::kPublish);
    bytes[0] = static_cast<char>(bytes[0] + 1);
    EXPECT_FALSE(BatchReader(bytes).ok());
}

TEST(BatchTest, RandomDamageNeverReadsPastTheEnd) {
    std::mt19937 random(7);
    for (int round = 0; round < 20000; ++round) {
        BatchKind kind = kKinds[random() % 4];
        std::string bytes = sample_batch(kind);
        for (int i = 0; i < 4; ++i) {
            bytes[random() % bytes.size()] = static_cast<char>(random());
        }
        Exact damaged(bytes);
        BatchReader reader(damaged.view());
        read_as(reader.kind(), reader);
    }
}

}  // namespace
}  // namespace pgmqtt::broker
