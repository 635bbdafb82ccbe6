// Every option: who knows it, what it sets, how it is shown.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loadtest/options.h"

namespace pgmqtt::loadtest {

struct Option {
    const char* name;
    const char* argument;  // "" of a flag
    const char* text;      // ends with the default in brackets
    const char* modes;     // "" for all, else the list of those that know it
    std::function<void(Options&, const std::string&)> set;
    std::function<std::string(const Options&)> get;

    bool is_flag() const { return *argument == '\0'; }
};

std::vector<Option> options_of(const std::string& mode);

// compare passes it on to both sides.
bool is_of_workload(const Option& option);

}  // namespace pgmqtt::loadtest
