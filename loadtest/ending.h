// How a run ends: with a report of what it saw, also when it ended early, and without traces.
#pragma once

#include <exception>
#include <string>

#include "loadtest/run_result.h"
#include "loadtest/stop.h"

namespace pgmqtt::loadtest {

// The first reason is the one.
inline void end_early(RunResult& result, const std::string& why) {
    if (result.ended_early.empty()) result.ended_early = why;
}

// A failure to remove traces does not cost the report.
template <class CleanUp>
void clean_up_after(RunResult& result, CleanUp clean_up) {
    try {
        clean_up();
    } catch (const std::exception& error) {
        result.warnings.push_back(std::string("not all that the run made was removed: ") +
                                  error.what());
    }
}

// work(result), conclude(result), clean_up(). A failure before has_begun() means that there was no
// run: it is thrown, behind clean_up(). Later ones, and a signal at any time, end the run early.
template <class HasBegun, class Work, class Conclude, class CleanUp>
RunResult carry_out(RunResult result, HasBegun has_begun, Work work, Conclude conclude,
                    CleanUp clean_up) {
    std::exception_ptr no_run;
    try {
        work(result);
    } catch (const std::exception& error) {
        if (is_stopping() || has_begun()) {
            end_early(result, is_stopping() ? stop_reason() : error.what());
        } else {
            no_run = std::current_exception();
        }
    }
    if (!no_run) conclude(result);
    clean_up_after(result, clean_up);
    if (no_run) std::rethrow_exception(no_run);
    return result;
}

}  // namespace pgmqtt::loadtest
