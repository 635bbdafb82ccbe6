// Loops: a sink writes a table whose mapping publishes to a topic that the sink reads. Topics and
// statements are SQL, so nobody can tell beforehand; so each message that comes of a sink's work
// says how many sinks it has behind it, and a sink refuses one with kMaxHops. The count travels as
// a user property (pg/properties.h), also through other brokers, and between the sink's transaction
// and the mapping as a logical message in the WAL.
#pragma once

#include "pg/backend.h"

#include <cstddef>

namespace pgmqtt::pg {

inline constexpr int kMaxHops = 8;

// Of what this process publishes now; 0 outside of a sink's transaction.
int current_hops();

// For a sink's transaction; made before it, so that its end resets the count however that comes.
class HopScope {
   public:
    explicit HopScope(int hops);
    ~HopScope();
    HopScope(const HopScope&) = delete;
};

// At the beginning of the transaction: writes the count into the WAL if there are mappings to read
// it. May raise.
void mark_transaction_with_hops();

// The count in a logical message; 0: it is not one of ours.
int hops_in_logical_message(const char* prefix, size_t size, const char* content);

}  // namespace pgmqtt::pg
