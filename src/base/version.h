// What calls itself pgmqtt: the version of pgmqtt.control.
#pragma once

namespace pgmqtt::base {

inline constexpr const char* kVersion = "1.0";

}  // namespace pgmqtt::base
