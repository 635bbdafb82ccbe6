// Why a run cannot go on; the text says what to do next.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace pgmqtt::loadtest {

class LoadError : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
};

[[noreturn]] inline void throw_errno(const std::string& what, const std::string& advice) {
    throw LoadError(what + ": " + std::generic_category().message(errno) + "; " + advice);
}

}  // namespace pgmqtt::loadtest
