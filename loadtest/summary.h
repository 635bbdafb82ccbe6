// A result for people, and for programs.
#pragma once

#include <string>

#include "loadtest/run_result.h"

namespace pgmqtt::loadtest {

std::string summary(const RunResult& result);
// One line of JSON, without its end of line.
std::string to_json(const RunResult& result);

}  // namespace pgmqtt::loadtest
