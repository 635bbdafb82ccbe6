#include "store/durability_rules.h"

extern "C" {
#include <executor/spi.h>
}

#include <string>
#include <utility>

#include "mqtt/topic.h"
#include "pg/datum.h"
#include "pg/log.h"
#include "pg/transaction.h"

namespace pgmqtt::store {
namespace {

broker::Durability durability_of(base::ByteView name) {
    if (name == "async") return broker::Durability::kAsync;
    if (name == "unlogged") return broker::Durability::kUnlogged;
    return broker::Durability::kDurable;
}

}  // namespace

std::vector<broker::DurabilityRule> load_durability_rules() {
    std::vector<broker::DurabilityRule> rules;
    pg::value_or_throw(pg::transaction({.read_only = true}, [&rules] {
        SPI_execute("SELECT filter, durability FROM pgmqtt.durability_rule", true, 0);
        for (uint64 i = 0; i < SPI_processed; ++i) {
            bool null = false;
            HeapTuple row = SPI_tuptable->vals[i];
            TupleDesc desc = SPI_tuptable->tupdesc;
            base::ByteView filter = pg::utf8_view(SPI_getbinval(row, desc, 1, &null));
            base::ByteView name = pg::varlena_view(SPI_getbinval(row, desc, 2, &null));
            rules.push_back({std::string(filter), durability_of(name)});
        }
    }));
    std::erase_if(rules, [](const broker::DurabilityRule& rule) {
        if (mqtt::is_valid_topic_filter(rule.filter)) return false;
        // Not by set_durability(): someone wrote the table.
        pg::log(WARNING, "pgmqtt.durability_rule has an invalid filter: \"" + rule.filter + "\"");
        return true;
    });
    return rules;
}

}  // namespace pgmqtt::store
