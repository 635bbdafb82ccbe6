// The modes: a name, what it presets, and what it does.
#pragma once

#include <string>
#include <vector>

#include "loadtest/options.h"
#include "loadtest/run_result.h"

namespace pgmqtt::loadtest {

struct Mode {
    const char* name;
    const char* text;
    void (*preset)(Options& options);
    RunResult (*run)(const Options& options);
};

const std::vector<Mode>& all_modes();
// Or nullptr.
const Mode* find_mode(const std::string& name);

RunResult run_traffic(const Options& options);
RunResult run_offline(const Options& options);
RunResult run_cardinality(const Options& options);
RunResult run_storm(const Options& options);
RunResult run_idle(const Options& options);
RunResult run_sink(const Options& options);
RunResult run_cdc(const Options& options);
RunResult run_compare(const Options& options);

}  // namespace pgmqtt::loadtest
