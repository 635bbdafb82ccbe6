// The cdc worker's work: keeps slot and decoding in step with the mappings, and moves committed
// changes from the WAL through the mappings to the broker.
#pragma once

#include "pg/backend.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cdc/capture.h"
#include "cdc/change_log.h"
#include "cdc/decoder.h"
#include "cdc/evaluator.h"
#include "cdc/mapping.h"
#include "cdc/publisher.h"

namespace pgmqtt::cdc {

class Stream {
   public:
    // Does the worker's housekeeping after waiting so many milliseconds, or not at all for 0.
    // False: the worker has to stop.
    using Pause = std::function<bool(long)>;
    explicit Stream(Pause pause);
    ~Stream();
    Stream(const Stream&) = delete;

    // One round of work; what is left over makes timeout_ms() 0.
    void turn();
    // How long there is nothing to do unless the latch is set; -1: for ever.
    long timeout_ms() const;
    // Settings were read again: what was refused may work now.
    void settings_changed() { retry_at_ = {}; }

    // The extension is gone: so is the slot.
    static void leave_nothing();
    // The same, if it was dropped while no worker ran.
    static void clean_up();

   private:
    using Clock = std::chrono::steady_clock;

    void follow_configuration();
    void load();
    void watch_sources();
    void follow_slot();
    bool start();
    bool take_slot();
    void remember_slot();
    bool still_wanted();
    void stop();
    void disable(const std::string& reason);
    void disable(const pg::Error& error);
    void set_state(pg::CdcState state);
    void decode();
    Evaluator::Outcome run_batch();
    void evaluate();
    XLogRecPtr done() const;
    void confirm();
    void report();
    [[noreturn]] void fail(const char* what, pg::Error error);

    bool streaming() const { return decoder_.is_open(); }
    bool blocked() const { return Clock::now() < blocked_until_; }

    Pause pause_;
    ChangeLog log_;
    Capture capture_;
    Decoder decoder_;
    Publisher publisher_;
    Evaluator evaluator_;

    std::vector<Oid> sources_;  // of enabled mappings
    bool any_mapping_ = false;  // enabled or not
    uint64_t configuration_ = UINT64_MAX;
    uint64_t changes_ = 0;
    bool loaded_ = false;
    bool disabled_ = false;
    std::string told_reason_;            // of being disabled, as the log has it
    Clock::time_point retry_at_{};       // of a disabled stream
    Clock::time_point blocked_until_{};  // of evaluation
    std::chrono::milliseconds back_off_{0};
    Clock::time_point save_at_{};
    Clock::time_point remember_at_{};
    XLogRecPtr remembered_ = InvalidXLogRecPtr;  // as pgmqtt.cdc_slot has it
    bool caches_show_present_ = true;            // of this process; see Capture::take_saw_past()
    XLogRecPtr read_ = 0;                        // bytes of WAL, by the last decode()
    uint64_t told_changes_ = 0;                  // of what report() adds up beyond this process
    uint64_t told_spilled_ = 0;
};

}  // namespace pgmqtt::cdc
