#include "workers/main.h"

extern "C" {
#include <storage/ipc.h>
}

#include <exception>
#include <typeinfo>

#include "pg/guard.h"
#include "pg/log.h"

namespace pgmqtt::workers {

void run(void (*body)(Datum), Datum argument) {
    try {
        body(argument);
    } catch (const pg::Raised& raised) {
        pg::log(WARNING, "pgmqtt worker stopped and will be started again", raised.error());
    } catch (const std::exception& exception) {
        pg::log(WARNING, "pgmqtt worker stopped and will be started again", exception.what());
    }
    // 1: the postmaster starts it again. After 0 it never would.
    proc_exit(1);
}

}  // namespace pgmqtt::workers
