#include "sink/sink.h"

#include <algorithm>
#include <utility>

#include "pg/failpoint.h"
#include "pg/hops.h"
#include "pg/log.h"
#include "pg/properties.h"
#include "pg/shared.h"
#include "pg/transaction.h"
#include "sink/reason_text.h"
#include "sink/sink_transaction.h"
#include "sink/verdict.h"

namespace pgmqtt::sink {
namespace {

using std::chrono::milliseconds;

// Of one statement. Fewer, after a lock has ended one (kCheapTry).
constexpr size_t kBatchMessages = 10000;
constexpr size_t kBatchBytes = 16 << 20;

constexpr milliseconds kFirstDelay{100};
constexpr milliseconds kLongestDelay{30000};
// A lock is looked for more often: a look is cheap, and whoever holds the lock leaves a backlog
// behind.
constexpr milliseconds kLongestLockDelay{1000};

// The first try may meet what ends with the next commit of somebody else. Most others wait for next
// to nothing. Every fourth stands in the queue, since a lock that many take in turn is never free.
constexpr int kTriesPerWait = 4;
constexpr milliseconds kBriefLockWait{2};

// What a try that a lock may end again should take. It loses its work, and the others wait for it:
// the next has fewer messages.
constexpr milliseconds kCheapTry{10};
constexpr size_t kBatchStep = 8;

// How often a message of a sink with on_error = 'retry' is tried again.
constexpr int kRetries = 5;

// A deadlock or two are nothing to write about, and neither is a lock that is held for a second.
constexpr int kHoldsBeforeLog = 3;
constexpr int kLockHoldsBeforeLog = 5;

milliseconds delay_after(int holds, bool lock) {
    milliseconds delay = kFirstDelay * (1 << std::min(holds - 1, 16));
    return std::min(delay, lock ? kLongestLockDelay : kLongestDelay);
}

// Sinks that a message has behind it.
int hops_of(const Message& message) {
    return message.properties.empty() ? 0 : pg::hops_of(message.decoded_properties());
}

// All of a batch have the same count.
bool is_loop(const std::vector<const Message*>& batch) {
    return hops_of(*batch.front()) >= pg::kMaxHops;
}

// Marks what is not stored: it waits, or failed.
void leave_unstored(const Outcome& outcome, std::vector<char>& left_out) {
    std::fill(left_out.begin() + static_cast<std::ptrdiff_t>(outcome.done), left_out.end(),
              char{1});
    for (const Failure& failure : outcome.failures) left_out[failure.index] = 1;
}

pg::Error loop() {
    return pg::make_error(ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                          "message has " + std::to_string(pg::kMaxHops) +
                              " sinks behind it (user property pgmqtt-hops): this is a loop");
}

}  // namespace

Sink::Sink(Definition definition, pg::SinkSlot* slot)
    : definition_(std::move(definition)), slot_(slot), batch_limit_(kBatchMessages) {
    rebuild();
}

void Sink::rebuild() {
    statement_.reset();
    columns_.reset();
    activity_ = "sink " + definition_.name + ": " + definition_.statement;
    auto filter = broker::parse_sink_filter(definition_.filter);
    if (!filter) return;  // the broker routes nothing to it and has logged why
    columns_ = std::make_unique<MsgColumns>(std::move(filter->captures));
    statement_ = std::make_unique<SinkStatement>(definition_, *columns_);
}

void Sink::redefine(Definition definition) {
    retirements_ = 0;
    if (definition == definition_) return;
    definition_ = std::move(definition);
    rebuild();
    // Whatever it waited for may have been this change.
    retry_at_ = {};
    holds_ = 0;
}

void Sink::retire() {
    ++retirements_;
    slot_ = nullptr;
    retry_at_ = {};
    holds_ = 0;
}

void Sink::enqueue(std::shared_ptr<Message> message) {
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) show_queue();
}

void Sink::forget_messages() {
    queue_.clear();
    show_queue();
    head_attempts_ = 0;
}

void Sink::run(DeadLetters& dead_letters, Identities& identities, LockPatience& patience,
               Completions& completions) {
    limit_waits(patience);
    Clock::time_point start = Clock::now();
    Batch batch = next_batch();
    bool runs = !retired() && definition_.enabled && statement_ != nullptr;
    Outcome outcome = !runs            ? refuse(batch, not_wanted(), dead_letters)
                      : is_loop(batch) ? refuse(batch, loop(), dead_letters)
                                       : store(batch, dead_letters, identities);
    settle(outcome, completions);
    Clock::duration took = Clock::now() - start;
    if (slot_ != nullptr && outcome.done > 0) {
        auto time = std::chrono::duration_cast<std::chrono::microseconds>(took);
        ++slot_->batches;
        slot_->times.add(static_cast<uint32_t>(std::min<int64_t>(time.count(), UINT32_MAX)));
    }
    if (outcome.held_by == HeldBy::kNothing)
        recover();
    else
        hold(outcome);
    if (outcome.held.sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
        hold_for_lock(batch.size(), took, patience);
    show_queue();
}

void Sink::limit_waits(LockPatience& patience) {
    bool queues = holds_ % kTriesPerWait == kTriesPerWait - 1;
    lock_wait_ = patience.left(Clock::now());
    if (holds_ > 0 && !queues) lock_wait_ = std::min(lock_wait_, kBriefLockWait);
    if (statement_ != nullptr)
        statement_->wait_for_tables(queues ? LockWait::kQueue : LockWait::kNone);
}

Sink::Batch Sink::next_batch() const {
    Batch batch;
    size_t bytes = 0;
    for (const auto& message : queue_) {
        bytes += message->bytes.size();
        if (batch.size() == batch_limit_ || (bytes > kBatchBytes && !batch.empty())) break;
        // What comes of a batch gets one count.
        if (!batch.empty() && hops_of(*message) != hops_of(*batch.front())) break;
        batch.push_back(message.get());
    }
    return batch;
}

// Most batches are good: they pay for no subtransaction.
Outcome Sink::store(const Batch& batch, DeadLetters& dead_letters, Identities& identities) {
    for (bool bisect : {head_attempts_ > 0, true}) {
        Outcome outcome;
        pg::Status status = transact(batch, bisect, outcome, dead_letters, identities);
        if (status) return outcome;
        bool transient = is_transient(status.error().sqlstate);
        if (!bisect && !transient) continue;
        // Also an ERROR at commit, which is no single message's.
        outcome = {};
        outcome.held_by = transient ? HeldBy::kWeather : HeldBy::kStatement;
        outcome.held = std::move(status.error());
        return outcome;
    }
    return {};
}

pg::Status Sink::transact(const Batch& batch, bool bisect, Outcome& outcome,
                          DeadLetters& dead_letters, Identities& identities) {
    BatchRun run(*statement_, *columns_, batch, outcome);
    if (definition_.retry) run.hold_failures(head_attempts_ < kRetries);
    // Of a sink with QoS 0 nobody waits to hear: PUBREL may come before its rows do.
    bool confirms = definition_.qos != mqtt::Qos::k0;
    std::vector<char> left_out(batch.size());
    run.leave_out(left_out);
    pg::HopScope hops(hops_of(*batch.front()) + 1);
    try {
        return pg::transaction({.activity = activity_.c_str()}, [&] {
            limit_lock_waits(lock_wait_);
            check_constraints_at_once();
            pg::failpoint_in_guard(pg::Failpoint::kSinkWrite);
            pg::mark_transaction_with_hops();
            if (statement_->may_use(MsgColumns::Kind::kMessageKey)) identities.keys.resolve(batch);
            if (confirms) identities.received.look_up(batch, left_out);
            if (bisect)
                run.run_bisected();
            else
                run.run_whole();
            for (const Failure& failure : outcome.failures)
                dead_letters.insert(definition_.name, *batch[failure.index], failure.error,
                                    failure.index == 0 ? head_attempts_ + 1 : 1);
            if (confirms) {
                leave_unstored(outcome, left_out);
                identities.received.note(batch, left_out);
            }
            pg::failpoint_in_guard(pg::Failpoint::kSinkCommit);
        });
    } catch (const pg::Raised& raised) {
        return base::fail(raised.error());
    }
}

pg::Error Sink::not_wanted() const {
    return pg::make_error(
        ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "sink \"" + definition_.name + "\"" + (retired() ? " was dropped" : " is disabled"));
}

// Nobody wants the messages, but they were accepted, so they are kept.
Outcome Sink::refuse(const Batch& batch, const pg::Error& error, DeadLetters& dead_letters) {
    Outcome outcome;
    pg::Status status = pg::transaction({.activity = activity_.c_str()}, [&] {
        limit_lock_waits(lock_wait_);
        for (const Message* message : batch)
            dead_letters.insert(definition_.name, *message, error, 1);
    });
    if (!status) {
        outcome.held_by = HeldBy::kWeather;
        outcome.held = std::move(status.error());
        return outcome;
    }
    outcome.done = batch.size();
    for (size_t index = 0; index < batch.size(); ++index)
        outcome.failures.push_back({index, error});
    return outcome;
}

// The transaction has committed.
void Sink::settle(const Outcome& outcome, Completions& completions) {
    auto failure = outcome.failures.begin();
    for (size_t index = 0; index < outcome.done; ++index) {
        Message& message = *queue_.front();
        if (failure != outcome.failures.end() && failure->index == index) {
            completions.finish(message, reason_of(failure->error.sqlstate),
                               reason_text(failure->error));
            ++failure;
        } else {
            completions.finish(message, mqtt::ReasonCode::kSuccess, {});
        }
        queue_.pop_front();
    }
    if (outcome.done > 0) head_attempts_ = 0;
    if (outcome.held_by == HeldBy::kMessage) ++head_attempts_;
    pg::Shared& shared = *pg::shared();
    shared.sink_rows += outcome.done - outcome.failures.size();
    shared.sink_dead_letters += outcome.failures.size();
    if (slot_ == nullptr) return;
    slot_->messages += outcome.done;
    slot_->dead_letters += outcome.failures.size();
}

void Sink::hold(const Outcome& outcome) {
    holds_ = outcome.done > 0 ? 1 : holds_ + 1;
    bool lock = outcome.held.sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
    retry_at_ = Clock::now() + delay_after(holds_, lock);
    ++pg::shared()->sink_retries;
    if (slot_ != nullptr) ++slot_->retries;
    bool statement = outcome.held_by == HeldBy::kStatement;
    show(statement ? pg::SinkState::kError : pg::SinkState::kWaiting, outcome.held.message);
    if (logged_ || !(statement || holds_ >= (lock ? kLockHoldsBeforeLog : kHoldsBeforeLog))) return;
    logged_ = true;
    pg::log(WARNING,
            "sink \"" + definition_.name + "\" " +
                (statement ? "cannot run its statement" : "waits") + " and is tried again",
            outcome.held);
}

void Sink::hold_for_lock(size_t tried, Clock::duration took, LockPatience& patience) {
    patience.spend(std::min<Clock::duration>(took, lock_wait_));
    if (took > kCheapTry) batch_limit_ = std::max<size_t>(tried / kBatchStep, 1);
}

void Sink::recover() {
    if (logged_) pg::log(LOG, "sink \"" + definition_.name + "\" works again");
    if (holds_ > 0) show(pg::SinkState::kActive, {});
    logged_ = false;
    holds_ = 0;
    retry_at_ = {};
    batch_limit_ = std::min(batch_limit_ * kBatchStep, kBatchMessages);
}

// Of what waits the first has waited longest. (`pending` follows with the next batch, or is 1.)
void Sink::show_queue() {
    if (slot_ == nullptr) return;
    slot_->pending = queue_.size();
    slot_->waits_since =
        queue_.empty() ? 0 : queue_.front()->received_at.time_since_epoch().count();
}

void Sink::show(pg::SinkState state, const std::string& message) {
    if (slot_ != nullptr)
        slot_->set(state, cut_at_character(message, pg::SinkSlot::kMessageBytes - 1));
}

}  // namespace pgmqtt::sink
