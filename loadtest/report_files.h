// The files that a run's report goes to: looked at before it begins, written at its end.
#pragma once

#include "loadtest/options.h"
#include "loadtest/run_result.h"

namespace pgmqtt::loadtest {

// Throws LoadError when --json or --html could not be written. Leaves no file that was not there.
void check_report_files(const Options& options);

// One that fails does not keep the other from being written; throws LoadError afterwards.
void write_report_files(const Options& options, const RunResult& result);

}  // namespace pgmqtt::loadtest
