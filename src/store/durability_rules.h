// pgmqtt.durability_rule, for the broker.
#pragma once

#include "pg/guard.h"

#include <vector>

#include "broker/broker.h"

namespace pgmqtt::store {

// Throws pg::Raised.
std::vector<broker::DurabilityRule> load_durability_rules();

}  // namespace pgmqtt::store
