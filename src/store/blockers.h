// Who stands in the way of the store worker.
#pragma once

#include <string>

namespace pgmqtt::store {

// "Process 123 holds ShareLock on pgmqtt.message_1." Empty: nobody holds a lock on the tables that
// writing would have to wait for.
std::string lock_holders() noexcept;

}  // namespace pgmqtt::store
