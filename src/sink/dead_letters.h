// Messages that a sink could not store, in pgmqtt.dead_letter.
#pragma once

#include "pg/backend.h"

#include <string>

#include "pg/guard.h"
#include "pg/statement.h"
#include "sink/message.h"

namespace pgmqtt::sink {

class DeadLetters {
   public:
    DeadLetters();

    // One row. Inside a transaction that acts as the owner of the table; may raise. `name` is the
    // sink's.
    void insert(const std::string& name, const Message& message, const pg::Error& error,
                int attempts);

   private:
    pg::Statement insert_;
};

}  // namespace pgmqtt::sink
