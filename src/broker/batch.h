// What workers say to each other through shared memory: batches of records, encoded once per turn.
// Pure bytes; the transport is pg/queue.h. Every batch has a number, given by its sender, that its
// acknowledgement repeats; numbers grow by one and start at 1 with each broker start.
//
//   broker -> store        StoreBatch, PublishDone, CommandDone, FetchBatch
//   store -> broker        Completion batches, PublishBatch (the outbox), CommandBatch,
//                          FetchedBatch, MoveBatch
//   broker -> sink         SinkBatch
//   sink -> broker         Completion batches
//   cdc -> broker          PublishBatch
//   broker -> cdc          PublishDone (the batch is stored or routed)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "broker/message_view.h"
#include "broker/store_record.h"
#include "mqtt/reason.h"

namespace pgmqtt::broker {

using base::ByteView;

enum class BatchKind : uint8_t {
    kStore = 1,
    kSink,
    kPublish,
    kCompletion,
    kPublishDone,
    kCommand,
    kCommandDone,
    kFetch,
    kFetched,
    kMove
};

// --- broker -> sink: a message and the sinks whose filter it matched.
struct SinkRecord {
    uint64_t token = 0;              // repeated by the completion
    std::vector<uint32_t> sink_ids;  // pgmqtt.sink.id
    MessageView message;
    ByteView client_id;  // empty: came from SQL
    ByteView username;   // empty: anonymous
    // Of a client's PUBLISH that may come again, with DUP: QoS 1 or 2, in a session that outlives
    // its connection. Identifier 0: of any other.
    uint16_t packet_id = 0;
    bool dup = false;
    uint64_t session_id = 0;
    base::WallTime session_created_at{};  // identifiers of sessions are used again
};

// --- cdc -> broker, store -> broker: publishes that the database makes.
struct PublishRecord {
    MessageView message;
};

// --- store -> broker: what an SQL function asks for.
enum class CommandAction : uint8_t { kDisconnect = 1, kDeleteSession };

struct CommandRecord {
    uint64_t id = 0;  // pgmqtt.command.id
    CommandAction action = CommandAction::kDisconnect;
    ByteView client_id;
    mqtt::ReasonCode reason = mqtt::ReasonCode::kAdministrativeAction;
    base::WallTime given_at{};
};

// --- broker -> store: messages that sessions can take now. What was sent to be stored before is
// stored before it is looked for.
struct FetchRecord {
    uint64_t message_id = 0;
    Durability durability = Durability::kDurable;
};

// --- store -> broker: one for each that was asked for, in batches of a bounded size, in order. The
// number of each batch is that of the FetchBatch.
struct FetchedRecord {
    uint64_t message_id = 0;
    bool found = false;  // if not, somebody removed it by hand
    MessageView message;
};

// --- store -> broker: the log is to be cleaned. The broker moves what it still needs of ids up to
// this one, some at a time, and says kMoved. Said again when the store worker came back.
struct MoveRecord {
    Durability durability = Durability::kDurable;  // kUnlogged: that log; else the logged one
    uint64_t up_to = 0;
};

// --- back: what became of a record.
struct CompletionRecord {
    uint64_t token = 0;
    mqtt::ReasonCode reason = mqtt::ReasonCode::kSuccess;
    ByteView reason_string;  // for MQTT 5.0 clients; may be empty
};

// Builds one batch. Reused: clear() keeps the storage.
class BatchWriter {
   public:
    explicit BatchWriter(BatchKind kind);
    void clear();
    bool empty() const { return count_ == 0; }
    uint32_t count() const { return count_; }
    size_t size() const { return bytes_.size(); }

    void add(const StoreRecord& record);
    void add(const SinkRecord& record);
    void add(const PublishRecord& record);
    void add(const CommandRecord& record);
    void add(const CompletionRecord& record);
    void add(const FetchRecord& record);
    void add(const FetchedRecord& record);
    void add(const MoveRecord& record);

    // Records that were encoded before, by a writer of the same kind.
    void add_encoded(ByteView records, uint32_t count);

    // The records without the header; the offset of a record in it stays what it was when added.
    ByteView records() const { return ByteView(bytes_).substr(kHeaderSize); }

    // The batch with its header. Valid until the next add() or clear().
    ByteView finish(uint64_t number);

    // Format byte, kind, number, count.
    static constexpr size_t kHeaderSize = 1 + 1 + 8 + 4;

   private:
    BatchKind kind_;
    uint32_t count_ = 0;
    std::string bytes_;
};

// Reads one batch. `ok()` turns false on any malformed byte; nothing is trusted, though both ends
// are ours: a reader must survive a peer of another version.
class BatchReader {
   public:
    explicit BatchReader(ByteView batch);
    bool ok() const { return ok_; }
    BatchKind kind() const { return kind_; }
    uint64_t number() const { return number_; }
    uint32_t count() const { return count_; }  // records in the batch

    // Each returns false at the end or on a malformed record (then ok() is false). A record of the
    // wrong kind is malformed; so are bytes behind the last record.
    bool next(StoreRecord& record);
    bool next(SinkRecord& record);
    bool next(PublishRecord& record);
    bool next(CommandRecord& record);
    bool next(CompletionRecord& record);
    bool next(FetchRecord& record);
    bool next(FetchedRecord& record);
    bool next(MoveRecord& record);

   private:
    bool begin_record(BatchKind kind);
    bool end_record(bool record_ok);

    base::ByteReader reader_;
    bool ok_ = false;
    BatchKind kind_ = BatchKind::kStore;
    uint64_t number_ = 0;
    uint32_t count_ = 0;
    uint32_t read_ = 0;
};

// An acknowledgement that a whole batch is done: header only (kCompletion of a store batch,
// kPublishDone, kCommandDone).
std::string batch_done(BatchKind kind, uint64_t number);

}  // namespace pgmqtt::broker
