// A run as one page that needs nothing but itself: verdict, plots over time, every counter and
// option.
#pragma once

#include <string>

#include "loadtest/run_result.h"

namespace pgmqtt::loadtest {

std::string html_of(const RunResult& result);

// Empty when the file was written, otherwise what went wrong.
std::string write_html(const RunResult& result, const std::string& path);

}  // namespace pgmqtt::loadtest
