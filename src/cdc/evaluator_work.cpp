// What the evaluator says of itself: pgmqtt.stat_cdc, pgmqtt.stat_mappings.
#include "cdc/evaluator.h"

namespace pgmqtt::cdc {

namespace {

uint32_t micros(std::chrono::steady_clock::duration time) {
    return static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace

void Evaluator::begin_counting() {
    began_ = Clock::now();
    counted_.clear();
    for (auto& [id, entry] : entries_) entry.mapping->work() = {};
}

// Of a batch that is with the publisher: one that has to be tried again was not done.
void Evaluator::report_work() {
    for (const Counted& counted : counted_) {
        BatchWork& work = counted.mapping->work();
        ++work.rows;
        if (counted.filtered) ++work.filtered;
    }
    pg::Shared* shared = pg::shared();
    for (auto& [id, entry] : entries_) {
        const BatchWork& work = entry.mapping->work();
        if (work.rows == 0) continue;
        shared->cdc_filtered += work.filtered;
        pg::MappingStatus* status = entry.mapping->status();
        if (status == nullptr) continue;
        status->rows += work.rows;
        status->filtered += work.filtered;
        status->commit_lsn = begin_.commit_lsn;
        status->commit_at = begin_.committed_at;
        status->times.add(micros(work.time));
    }
    for (const Staged& staged : staged_) {
        if (staged.mapping == nullptr) ++shared->cdc_transactions;
    }
    if (counted_.empty()) return;
    shared->cdc_commit_lsn = begin_.commit_lsn;
    shared->cdc_commit_at = begin_.committed_at;
    shared->cdc_times.add(micros(Clock::now() - began_));
}

TimestampTz Evaluator::current_commit() const {
    ChangeLog::Mark mark = log_.begin();
    const Record* next = log_.read(mark);
    bool begins = next != nullptr && next->kind == RecordKind::kBegin;
    return begins ? static_cast<const BeginRecord*>(next)->committed_at : begin_.committed_at;
}

}  // namespace pgmqtt::cdc
