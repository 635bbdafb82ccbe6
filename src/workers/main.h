// The C shell around a worker's main: whatever C++ throws ends in the log and in a restart of that
// worker, never in a crash of the cluster.
#pragma once

#include "pg/backend.h"

namespace pgmqtt::workers {

// Runs `body`; does not return.
[[noreturn]] void run(void (*body)(Datum), Datum argument);

}  // namespace pgmqtt::workers

#define PGMQTT_WORKER_MAIN(name, body)                   \
    _Pragma("GCC visibility push(default)") extern "C" { \
        void name(Datum argument);                       \
        void name(Datum argument) {                      \
            pgmqtt::workers::run(body, argument);        \
        }                                                \
    }                                                    \
    _Pragma("GCC visibility pop")
