#include "store/store.h"

extern "C" {
#include <storage/lockdefs.h>
}

#include <algorithm>
#include <utility>

#include "pg/append_table.h"
#include "pg/extension.h"
#include "pg/failpoint.h"
#include "pg/settings.h"
#include "pg/shared.h"
#include "pg/transaction.h"

namespace pgmqtt::store {

using broker::BatchKind;
using broker::BatchReader;

namespace {

// The statements look rows up by index, a few or many at a time, in tables whose size may be
// anything by the time the plan is used: no other kind of plan is ever wanted, and none is to be
// made anew each cycle.
constexpr const char* kPlanning[][2] = {
    {"plan_cache_mode", "force_generic_plan"},
    {"enable_seqscan", "off"},
    {"enable_hashjoin", "off"},
    {"enable_mergejoin", "off"},
    {"jit", "off"},
};

// A segment that somebody reads (pg_dump) is truncated later.
constexpr std::chrono::milliseconds kTendRetry{1000};

}  // namespace

Store::Store()
    : link_(pg::Worker::kStore, pg::Worker::kStore),
      outbox_(BatchKind::kPublish, pg::shared()->outbox, "pgmqtt: reading the outbox"),
      commands_(BatchKind::kCommand, pg::shared()->commands, "pgmqtt: reading commands",
                &pg::shared()->commands_done) {
    pg::value_or_throw(pg::guard([] {
        for (const auto& [name, value] : kPlanning)
            SetConfigOption(name, value, PGC_USERSET, PGC_S_SESSION);
    }));
}

void Store::turn() {
    if (link_.connect() && link_.epoch() != epoch_) reconnect();
    if (load()) {
        receive();
        link_.flush();
        if (due()) write_cycle();
        answer_fetches();
        tend_logs();
        say_what_is_written();
    }
    fetch(outbox_);
    fetch(commands_);
    link_.flush();
}

// Before anything is taken: what comes may refer to what is there.
bool Store::load() {
    for (QueueLog* log : {&logged_, &unlogged_}) {
        if (log->loaded()) continue;
        if (writing_.lasts()) return false;
        pg::Status status = log->load();
        if (!status) {
            writing_.failed(status.error());
            return false;
        }
    }
    return true;
}

// A broker that is still the same sends again what it was not told about. A new one loads what is
// stored: so what was received from the old one is written first, and the new one waits for that.
void Store::reconnect() {
    epoch_ = link_.epoch();
    last_number_ = 0;
    resent_ = true;
    inherited_ = !batches_.empty();
    fetches_.clear();
    logged_.forget_asked();
    unlogged_.forget_asked();
    outbox_.reconnected(epoch_);
    commands_.reconnected(epoch_);
}

void Store::receive() {
    base::ByteView bytes;
    while (!inherited_ && link_.receive(bytes)) {
        BatchReader header(bytes);
        if (!header.ok()) continue;
        switch (header.kind()) {
            case BatchKind::kStore:
                take(bytes);
                break;
            case BatchKind::kFetch:
                fetches_.add(header);
                break;
            case BatchKind::kPublishDone:
                outbox_.done(header.number());
                break;
            case BatchKind::kCommandDone:
                commands_.done(header.number());
                break;
            default:
                break;
        }
    }
}

void Store::take(base::ByteView batch) {
    batches_.emplace_back(batch);
    if (std::exchange(resent_, false)) session_changes_.may_be_repeated();
    BatchReader reader(batches_.back());
    broker::StoreRecord record;
    while (reader.next(record)) {
        ++records_;
        if (record.kind == broker::StoreKind::kRetain ||
            record.kind == broker::StoreKind::kUnretain)
            retained_changes_.add(record);
        else
            session_changes_.add(record);
    }
    last_number_ = reader.number();
}

Store::Clock::time_point Store::due_at() const {
    Clock::time_point when = Clock::time_point::max();
    if (!batches_.empty()) when = Clock::time_point{};
    if (outbox_.delivered()) when = std::min(when, outbox_.retry_at());
    if (commands_.delivered()) when = std::min(when, commands_.retry_at());
    auto may = records_ <= kLittle ? pace_of_little_.next() : pace_.next();
    return std::max({when, writing_.retry_at(), may});
}

bool Store::due() const {
    return Clock::now() >= due_at();
}

void Store::write_cycle() {
    for (base::Pace* pace : {&pace_, &pace_of_little_})
        pace->take(Clock::now(), std::chrono::milliseconds(pg::settings.tick));
    const broker::SessionNetEffect net = session_changes_.net_effect();
    logged_.prepare(net, session_changes_.repeated());
    unlogged_.prepare(net, session_changes_.repeated());
    pg::Status status = write(net);
    if (status)
        written(net);
    else
        not_written(status.error());
}

pg::CommitWait Store::awaited(const broker::SessionNetEffect& net) const {
    auto of_state = static_cast<broker::Durability>(pg::settings.durability);
    broker::Durability most = net.awaited(of_state);
    if (!retained_changes_.empty()) most = std::min({most, of_state, broker::Durability::kAsync});
    if (most == broker::Durability::kDurable) return pg::CommitWait::kFlush;
    return most == broker::Durability::kAsync ? pg::CommitWait::kWrite : pg::CommitWait::kNothing;
}

pg::Status Store::write(const broker::SessionNetEffect& net) {
    pg::TransactionOptions options{.wait = awaited(net), .activity = "pgmqtt: storing"};
    return pg::transaction(options, [this, &net] {
        pg::failpoint_in_guard(pg::Failpoint::kStoreWrite);
        lock_tables(net);
        retained_.apply(retained_changes_, session_changes_.repeated());
        sessions_.apply(net);
        sink_received_.forget_released(net);
        logged_.write();
        unlogged_.write();
        outbox_.remove();
        commands_.remove();
        if (!net.moved.empty()) pg::failpoint_in_guard(pg::Failpoint::kStoreMove);
        pg::require_extension();
        pg::failpoint_in_guard(pg::Failpoint::kStoreCommit);
    });
}

// Before anything is written: what is tried again and again while somebody holds a lock leaves no
// dead rows behind.
void Store::lock_tables(const broker::SessionNetEffect& net) {
    auto lock = [](const char* table) { pg::lock(pg::table_id(table), RowExclusiveLock); };
    if (!retained_changes_.empty()) lock("retained_message");
    if (!net.sessions.empty() || !net.ended_sessions.empty()) lock("session");
    if (!net.subscriptions.empty() || !net.unsubscribed.empty() || !net.ended_sessions.empty())
        lock("session_subscription");
    if (sink_received_.concerned(net)) lock("sink_received");
    logged_.lock();
    unlogged_.lock();
}

void Store::written(const broker::SessionNetEffect& net) {
    pg::failpoint(pg::Failpoint::kStoreAnswer);
    if (!net.moved.empty()) pg::failpoint(pg::Failpoint::kStoreMoved);
    logged_.written(net);
    unlogged_.written(net);
    pg::Shared* shared = pg::shared();
    if (!batches_.empty()) {
        shared->store_batches.fetch_add(batches_.size(), std::memory_order_relaxed);
        if (last_number_ != 0) link_.send(broker::batch_done(BatchKind::kCompletion, last_number_));
        forget_batches();
        pg::failpoint(pg::Failpoint::kStoreAnswered);
    }
    outbox_.removed();
    commands_.removed();
    writing_.over();
}

void Store::answer_fetches() {
    if (!fetches_.pending() || inherited_ || reading_.lasts()) return;
    pg::Status status = fetches_.answer(logged_, unlogged_, batches_.empty(), link_);
    if (status)
        reading_.over();
    else
        reading_.failed(status.error());
}

void Store::tend_logs() {
    if (Clock::now() < tend_at_) return;
    tend(logged_);
    tend(unlogged_);
}

// Counts that are in doubt are made anew, what nobody needs is truncated, and what stands in the
// way of that is asked for.
void Store::tend(QueueLog& log) {
    pg::Status status = base::Done{};
    if (log.in_doubt()) status = log.load();
    if (status && log.has_drained()) status = log.truncate();
    Trouble& trouble = tending_[static_cast<int>(log.kind())];
    if (status)
        trouble.over();
    else
        trouble.failed(status.error());
    if (!status || log.in_doubt() || log.has_drained()) tend_at_ = Clock::now() + kTendRetry;
    uint64_t up_to = log.wants_moved();
    if (up_to == 0 || !link_.connected() || inherited_) return;
    broker::BatchWriter batch(BatchKind::kMove);
    bool unlogged = log.kind() == LogKind::kUnlogged;
    batch.add(broker::MoveRecord{
        unlogged ? broker::Durability::kUnlogged : broker::Durability::kDurable, up_to});
    link_.send(batch.finish(0));
    log.asked();
}

void Store::forget_batches() {
    batches_.clear();
    retained_changes_.clear();
    session_changes_.clear();
    records_ = 0;
    inherited_ = false;
}

// From here on a new broker may load: nothing of what the old one sent will be written any more.
void Store::say_what_is_written() {
    if (inherited_ || pg::shared()->store_epoch.exchange(epoch_) == epoch_) return;
    pg::wake(pg::Worker::kBroker);
}

// Nothing is lost: the batches stay, the broker withholds the acknowledgements and pauses
// publishers when too much waits. Only those of a broker that is gone are not worth another try,
// while a new one waits for them: nobody was told that they are stored, and the same broker would
// send them again.
void Store::not_written(const pg::Error& error) {
    session_changes_.may_be_repeated();  // who knows what became of a commit that was interrupted
    if (inherited_) forget_batches();
    writing_.failed(error);
}

template <class Table>
void Store::fetch(Handover<Table>& handover) {
    if (!link_.connected() || !handover.has_work()) return;
    if (Clock::now() < std::max(hearing_.retry_at(), handover.retry_at())) return;
    pg::Status status = handover.fetch(link_);
    if (status)
        hearing_.over();
    else
        hearing_.failed(status.error());
}

long Store::timeout_ms() const {
    Clock::time_point when = due_at();
    if (link_.connected() && outbox_.has_work())
        when = std::min(when, std::max(hearing_.retry_at(), outbox_.retry_at()));
    if (link_.connected() && commands_.has_work())
        when = std::min(when, std::max(hearing_.retry_at(), commands_.retry_at()));
    if (logged_.wants_care() || unlogged_.wants_care()) when = std::min(when, tend_at_);
    if (!logged_.loaded() || !unlogged_.loaded()) when = std::min(when, writing_.retry_at());
    if (fetches_.pending() && reading_.lasts()) when = std::min(when, reading_.retry_at());
    if (when == Clock::time_point::max()) return -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count();
    return std::max<long>(0, static_cast<long>(left));
}

}  // namespace pgmqtt::store
