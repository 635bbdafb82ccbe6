// The two parts of `cardinality` that are programs of their own.
#pragma once

#include "loadtest/options.h"
#include "loadtest/run_result.h"

namespace pgmqtt::loadtest {

// --filters
RunResult run_many_filters(const Options& options);
// --retained
RunResult run_many_retained(const Options& options);

}  // namespace pgmqtt::loadtest
