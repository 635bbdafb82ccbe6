#include "cdc/stream.h"

extern "C" {
#include <access/xlog.h>
#include <commands/extension.h>
#include <replication/slot.h>
#include <utils/timestamp.h>
}

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "cdc/slot.h"
#include "cdc/slot_record.h"
#include "cdc/source.h"
#include "cdc/status.h"
#include "cdc/wal_reader.h"
#include "pg/failpoint.h"
#include "pg/follow.h"
#include "pg/log.h"
#include "pg/settings.h"
#include "pg/transaction.h"

namespace pgmqtt::cdc {

namespace {

using namespace std::chrono_literals;

// Decoding pauses for evaluation when this much is waiting.
constexpr size_t kLogBytes = 32 << 20;
// A crash has what came after the last save decoded, and published, again. Saving flushes two files
// and a directory: as often as it takes a twentieth of the time.
constexpr int kSaveShare = 20;
constexpr auto kShortestSaveInterval = 100ms;
constexpr auto kLongestSaveInterval = 1s;
constexpr auto kDisabledRetry = 10s;
// For the message that says what a slot which has gone had still published.
constexpr auto kRememberInterval = 60s;
constexpr long kCreationPollMs = 10;
constexpr long kIdleTickMs = 1000;
constexpr XLogRecPtr kMuchWal = 1 << 20;

// How long to wait before the same is tried again: what is in the way of a retry passes by itself,
// what stalls a mapping waits for somebody.
struct BackOff {
    std::chrono::milliseconds first;
    std::chrono::milliseconds last;
};
constexpr BackOff kRetryBackOff{2ms, 250ms};
constexpr BackOff kStallBackOff{500ms, 30s};

constexpr const char* kLostSlot =
    "the replication slot has lost WAL (max_slot_wal_keep_size), so changes are missing";
constexpr const char* kLostSlotHint =
    "Disable all mappings and enable them again to go on with a new slot, then publish the tables' "
    "state anew.";

constexpr const char* kMissingSlot =
    "pgmqtt's replication slot does not exist any more, so changes of mapped tables are missing";
constexpr const char* kMissingSlotHint =
    "It was dropped, or is not here because of a promotion, an upgrade or a restored dump. The "
    "mappings go on with a new one; see pgmqtt.mappings, and publish the tables' state anew with "
    "pgmqtt.snapshot_mapping().";

volatile sig_atomic_t never = 0;

}  // namespace

Stream::Stream(Pause pause)
    : pause_(std::move(pause)),
      capture_(log_),
      decoder_(capture_, log_),
      evaluator_(log_, capture_, publisher_) {
    // What waits in a file is bounded by the WAL, not by a user's limit.
    pg::value_or_throw(pg::guard([] {
        SetConfigOption("temp_file_limit", "-1", PGC_SUSET, PGC_S_OVERRIDE);
        pg::shared()->cdc_started_at = GetCurrentTimestamp();
        pg::shared()->cdc_evaluation = 0;
    }));
}

Stream::~Stream() {
    // A checkpoint at shutdown would not do it: it writes slots that are marked as changed.
    if (streaming()) {
        publisher_.turn();
        pg::Status status = decoder_.confirm(done());
        if (status.ok()) status = decoder_.keep_restart_near();
        if (status.ok()) status = decoder_.save();
        if (!status.ok()) pg::log(LOG, "could not save the slot's position", status.error());
    }
    decoder_.close();
    release_slot();
    set_state(pg::CdcState::kStopped);
}

void Stream::leave_nothing() {
    keep_statuses(nullptr, 0);
    pg::Status status = drop_slot();
    if (!status.ok()) pg::log(WARNING, "could not drop pgmqtt's replication slot", status.error());
}

void Stream::clean_up() {
    if (!slot_exists()) return;
    bool exists = true;
    pg::TransactionOptions options;
    options.read_only = true;
    pg::Status status = pg::transaction(
        options, [&exists] { exists = OidIsValid(get_extension_oid("pgmqtt", true)); });
    if (status.ok() && !exists) leave_nothing();
}

void Stream::turn() {
    publisher_.turn();
    follow_configuration();
    if (!streaming()) return;
    decode();
    evaluate();
    publisher_.turn();
    confirm();
    report();
}

long Stream::timeout_ms() const {
    auto until = [](Clock::time_point then) {
        auto left = std::chrono::ceil<std::chrono::milliseconds>(then - Clock::now()).count();
        return std::max<long>(0, static_cast<long>(left));
    };
    if (disabled_) return until(retry_at_);
    if (!streaming()) return -1;
    long tick = pg::settings.cdc_tick;
    if (blocked()) return std::min(tick, until(blocked_until_));
    if (!log_.empty() && publisher_.has_room()) return 0;
    if (log_.empty() && read_ > 0 && !decoder_.reached(flushed_wal())) return 0;
    // Where much is written, what will be committed is read beforehand.
    bool pending = !log_.empty() || !publisher_.idle() || read_ > kMuchWal;
    // Idle, the commits that matter wake us; this is for the WAL of everybody else.
    long wait = pending ? tick : std::max(tick, kIdleTickMs);
    return decoder_.is_saved() ? wait : std::min(wait, until(save_at_));
}

// ------------------------------------------------------------------------------------------------
// Mappings and slot.

void Stream::follow_configuration() {
    uint64_t configuration = pg::shared()->configuration;
    bool retry = disabled_ && Clock::now() >= retry_at_;
    if (configuration == configuration_ && loaded_ && !retry) {
        if (capture_.take_sources_changed()) watch_sources();
        return;
    }
    load();
    configuration_ = configuration;
    follow_slot();
    if (loaded_) pg::shared()->cdc_configuration = configuration_;
}

void Stream::load() {
    pg::Result<std::vector<MappingDefinition>> definitions = load_mappings();
    pg::Result<std::string> snapshot_key = load_snapshot_key();
    caches_show_present_ = true;
    if (!definitions.ok() || !snapshot_key.ok()) {
        // The extension may have gone a moment ago.
        loaded_ = false;
        pg::log(DEBUG1, "could not read the mappings",
                definitions.ok() ? snapshot_key.error() : definitions.error());
        return;
    }
    capture_.set_snapshot_key(std::move(*snapshot_key));
    // The backend that made a mapping waits for us in its commit: what commits after that is behind
    // this.
    XLogRecPtr since = loaded_ ? GetXLogInsertRecPtr() : InvalidXLogRecPtr;
    loaded_ = true;
    sources_.clear();
    std::vector<int> ids;
    for (const MappingDefinition& definition : *definitions) {
        ids.push_back(definition.id);
        if (definition.enabled) sources_.push_back(definition.source);
    }
    any_mapping_ = !ids.empty();
    keep_statuses(ids.data(), static_cast<int>(ids.size()));
    evaluator_.set_mappings(*definitions, since);
    capture_.set_sources(sources_);
    watch_sources();
    blocked_until_ = {};
    back_off_ = 0ms;
}

// The commits that wake us: of the sources and of their partitions.
void Stream::watch_sources() {
    std::vector<Oid> watched;
    pg::TransactionOptions options;
    options.read_only = true;
    pg::Status status = pg::transaction(options, [this, &watched] {
        for (size_t i = 0; i < sources_.size(); ++i) {
            Oids oids = with_partitions(sources_[i]);
            watched.insert(watched.end(), oids.items, oids.items + oids.count);
        }
    });
    caches_show_present_ = true;
    if (!status.ok()) pg::log(WARNING, "could not look up partitions", status.error());
    pg::set_watched_relations(watched.data(), static_cast<int>(watched.size()));
}

void Stream::follow_slot() {
    if (!loaded_) return;
    disabled_ = false;
    // A slot is made for an enabled mapping, and stays as long as there is any.
    if (sources_.empty() && (!any_mapping_ || !slot_exists())) {
        stop();
        return;
    }
    if (streaming()) return;
    if (wal_level < WAL_LEVEL_LOGICAL) {
        disable("wal_level is " +
                std::string(wal_level == WAL_LEVEL_MINIMAL ? "minimal" : "replica") +
                "; set wal_level = logical and restart the server");
        return;
    }
    if (told_reason_.empty()) {
        set_state(pg::CdcState::kStarting);
        set_stream_status("starting");
    }
    start();
}

bool Stream::start() {
    if (!take_slot()) return false;
    if (slot_is_lost()) {
        // With all mappings switched off, whoever looks after them has seen it.
        if (sources_.empty()) {
            stop();
            return false;
        }
        release_slot();
        disable(std::string(kLostSlot) + ". " + kLostSlotHint);
        return false;
    }
    pg::Status status = decoder_.open();
    if (!status.ok()) {
        release_slot();
        disable(status.error());
        return false;
    }
    changes_ = 0;
    told_reason_.clear();
    remembered_ = InvalidXLogRecPtr;
    remember_slot();
    set_state(pg::CdcState::kStreaming);
    set_stream_status("streaming");
    return true;
}

bool Stream::take_slot() {
    if (slot_exists()) {
        pg::Status status = acquire_slot();
        if (!status.ok()) disable(status.error());
        return status.ok();
    }
    pg::Result<bool> missing = note_missing_slot();
    caches_show_present_ = true;
    if (!missing.ok()) {
        disable(missing.error());
        return false;
    }
    if (*missing) pg::log(WARNING, kMissingSlot, {}, kMissingSlotHint);
    pg::Result<CreateResult> result = create_slot([this] { return still_wanted(); });
    if (!result.ok()) {
        disable(result.error());
        return false;
    }
    if (!result->created) loaded_ = false;  // something changed: look again
    return result->created;
}

void Stream::remember_slot() {
    remember_at_ = Clock::now() + kRememberInterval;
    pg::Status status = cdc::remember_slot(decoder_.confirmed());
    caches_show_present_ = true;
    if (status.ok()) remembered_ = decoder_.confirmed();
    if (!status.ok()) pg::log(WARNING, "could not note the slot's position", status.error());
}

// While the slot is being made: that may take as long as somebody's transaction.
bool Stream::still_wanted() {
    if (!pause_(kCreationPollMs)) return false;
    publisher_.turn();
    int pid = pg::shared()->cdc_waits_for_pid;
    std::string waits_for = pid == pg::kPreparedTransaction
                                ? "a prepared transaction"
                                : "the transaction of pid " + std::to_string(pid);
    set_stream_status("starting", pid == 0 ? "" : "the replication slot waits for " + waits_for);
    if (pg::shared()->configuration == configuration_) return true;
    // More mappings are no reason to begin again; none at all is.
    uint64_t configuration = pg::shared()->configuration;
    load();
    configuration_ = configuration;
    return loaded_ && !sources_.empty();
}

void Stream::stop() {
    decoder_.close();
    // With neither mappings nor a slot it may be that a dump is being restored: what it says of the
    // slot comes first.
    bool known = any_mapping_ || slot_exists();
    pg::Status status = drop_slot();
    if (!status.ok()) pg::log(WARNING, "could not drop pgmqtt's replication slot", status.error());
    if (known) status = forget_slot();
    caches_show_present_ = true;
    // The extension may have gone a moment ago.
    if (known && !status.ok()) pg::log(DEBUG1, "could not forget the slot", status.error());
    set_state(pg::CdcState::kStopped);
    set_stream_status("stopped");
}

void Stream::disable(const std::string& reason) {
    disabled_ = true;
    retry_at_ = Clock::now() + kDisabledRetry;
    set_stream_status("disabled", reason);
    set_state(pg::CdcState::kDisabled);
    if (reason != told_reason_) pg::log(WARNING, "pgmqtt mappings are disabled: " + reason);
    told_reason_ = reason;
}

void Stream::disable(const pg::Error& error) {
    constexpr std::string_view kNotListed = "may not be used as an output plugin";
    if (error.message.find(kNotListed) != std::string::npos) {
        disable(
            "output_plugin_libraries does not list pgmqtt; add the line output_plugin_libraries = "
            "'pgoutput, test_decoding, pgmqtt' and reload the configuration");
        return;
    }
    disable(error.message + (error.hint.empty() ? "" : ". " + error.hint));
}

void Stream::set_state(pg::CdcState state) {
    pg::shared()->cdc_state = static_cast<int>(state);
}

// ------------------------------------------------------------------------------------------------
// Changes.

// Decoding that fails would fail again in the same place: the process ends, with the reason for
// everybody to see, and begins anew from what is confirmed.
void Stream::fail(const char* what, pg::Error error) {
    set_stream_status("error", error.message);
    error.message = std::string(what) + ": " + error.message;
    throw pg::Raised(std::move(error));
}

void Stream::decode() {
    read_ = 0;
    if (log_.bytes() > kLogBytes) return;
    XLogRecPtr target = flushed_wal();
    uint64_t changes = pg::shared()->changes;
    if (changes != changes_) {
        changes_ = changes;
        pg::Status status = pg::guard([&target] { target = flush_inserted_wal(); });
        if (!status.ok()) fail("could not flush WAL", std::move(status.error()));
    }
    if (decoder_.reached(target)) return;
    XLogRecPtr before = decoder_.position();
    if (caches_show_present_) {
        capture_.invalidate_caches();
        caches_show_present_ = false;
    }
    pg::Status status = decoder_.decode(target, kLogBytes, never);
    if (!status.ok()) fail("logical decoding failed", std::move(status.error()));
    read_ = decoder_.position() - before;
    report();
}

Evaluator::Outcome Stream::run_batch() {
    pg::Interruptible interruptible;
    return evaluator_.run_batch();
}

void Stream::evaluate() {
    if (log_.empty() || blocked()) return;
    if (capture_.take_saw_past()) capture_.invalidate_caches();
    while (!log_.empty() && publisher_.has_room()) {
        caches_show_present_ = true;
        Evaluator::Outcome outcome = run_batch();
        publisher_.turn();
        report();
        if (outcome == Evaluator::Outcome::kDone) {
            back_off_ = 0ms;
            if (!pause_(0)) return;
            continue;
        }
        bool stalled = outcome == Evaluator::Outcome::kStall;
        const BackOff& limits = stalled ? kStallBackOff : kRetryBackOff;
        back_off_ = std::clamp(back_off_ * 2, limits.first, limits.last);
        blocked_until_ = Clock::now() + back_off_;
        return;
    }
}

// With nothing under way all that was read is done, whether it concerned us or not: a quiet mapped
// table in a busy database does not hold back WAL.
XLogRecPtr Stream::done() const {
    XLogRecPtr done = publisher_.done();
    return log_.empty() && publisher_.idle() ? std::max(done, decoder_.position()) : done;
}

void Stream::confirm() {
    if (publisher_.done() > decoder_.confirmed()) pg::failpoint(pg::Failpoint::kCdcConfirm);
    pg::Status status = decoder_.confirm(done());
    if (status.ok()) status = decoder_.keep_restart_near();
    Clock::time_point now = Clock::now();
    if (status.ok() && !decoder_.is_saved() && now >= save_at_) {
        status = decoder_.save();
        Clock::duration took = Clock::now() - now;
        save_at_ = now + std::clamp<Clock::duration>(kSaveShare * took, kShortestSaveInterval,
                                                     kLongestSaveInterval);
    }
    if (!status.ok()) fail("could not confirm the slot's position", std::move(status.error()));
    pg::shared()->cdc_confirmed_lsn = decoder_.confirmed();
    if (now >= remember_at_ && publisher_.done() > remembered_) remember_slot();
}

// What pgmqtt.stat_cdc shows beside what the evaluator says.
void Stream::report() {
    pg::Shared* shared = pg::shared();
    shared->cdc_changes += capture_.changes() - std::exchange(told_changes_, capture_.changes());
    shared->cdc_spilled_bytes += log_.spilled() - std::exchange(told_spilled_, log_.spilled());
    shared->cdc_decoded_lsn = decoder_.position();
    shared->cdc_waiting_bytes = log_.bytes();
    bool idle = log_.empty() && publisher_.idle();
    shared->cdc_current_at = idle ? 0 : evaluator_.current_commit();
}

}  // namespace pgmqtt::cdc
