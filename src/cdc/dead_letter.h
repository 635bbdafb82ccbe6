// pgmqtt.dead_letter: changes that a mapping could not publish.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/xlogdefs.h>
}

#include <optional>
#include <string>
#include <vector>

#include "pg/guard.h"
#include "pg/statement.h"

namespace pgmqtt::cdc {

struct DeadLetter {
    std::string name;                    // of the mapping
    std::optional<std::string> topic;    // as far as evaluation came
    std::optional<std::string> payload;  // as the wire would have had it
    XLogRecPtr lsn = InvalidXLogRecPtr;
    int qos = 0;
    bool retain = false;
    pg::Error error;
};

class DeadLetters {
   public:
    DeadLetters();

    // In a transaction of its own, committed as synchronous_commit says.
    pg::Status write(const std::vector<DeadLetter>& letters);

   private:
    void insert(const DeadLetter& letter);

    pg::Statement insert_;
};

}  // namespace pgmqtt::cdc
