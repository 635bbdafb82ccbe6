// A mapping: its definition as stored in pgmqtt.mapping, and the same made ready to evaluate.
#pragma once

#include "pg/backend.h"

extern "C" {
#include <access/tupdesc.h>
#include <access/xlogdefs.h>
}

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cdc/change.h"
#include "cdc/expression.h"
#include "cdc/scope.h"
#include "pg/guard.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

struct MappingDefinition {
    int id = 0;
    std::string name;
    Oid source = InvalidOid;
    std::string topic;
    std::optional<std::string> payload;
    std::optional<std::string> filter;
    std::optional<std::string> properties;
    unsigned operations = 0;  // bit per Op
    int qos = 0;
    bool retain = false;
    bool stall = false;
    Oid owner = InvalidOid;
    std::string search_path;
    std::optional<std::vector<std::string>> calls;  // none: the mapping may call anything
    bool enabled = false;

    friend bool operator==(const MappingDefinition&, const MappingDefinition&) = default;
    bool wants(Op op) const { return (operations >> static_cast<int>(op) & 1) != 0; }
};

// All of them, by id. Runs a transaction.
pg::Result<std::vector<MappingDefinition>> load_mappings();

// The word in `operations` to its bit; 0: there is no such word. Case does not matter.
unsigned operation_bit(const char* word);

// The expression that stands for an omitted payload.
const char* default_payload(bool retain);

// The expressions of one mapping, parsed. Plain data for the same reason as Expression.
struct MappingExpressions {
    Scope scope;
    Expression topic;
    Expression payload;
    Expression known_payload;  // default payload of a row of which some columns are not known
    Expression filter;
    Expression properties;

    // What is needed of a definition; texts may be null, but for `topic`.
    struct Texts {
        const char* topic;
        const char* payload;
        const char* filter;
        const char* properties;
        bool retain;
        Calls calls;
    };
    // As the current user with the current search_path; SPI is connected. May raise. Good until
    // SPI_finish(), or until release() after keep().
    void prepare(Oid source, const Texts& texts);
    void keep();
    void release();

    void begin(ParamListInfo values);
    void end();
    void reset();

    template <class Visit>
    void for_each(Visit visit) {
        for (Expression* one : {&topic, &payload, &known_payload, &filter, &properties}) {
            if (one->given()) visit(*one);
        }
    }
};

// What a batch was to a mapping.
struct BatchWork {
    uint64_t rows = 0;
    uint64_t filtered = 0;
    std::chrono::steady_clock::duration time{};
};

class Mapping {
   public:
    Mapping(MappingDefinition definition, XLogRecPtr since);
    ~Mapping();
    Mapping(const Mapping&) = delete;

    const MappingDefinition& definition() const { return definition_; }
    // Commits before it are not this mapping's.
    XLogRecPtr since() const { return since_; }
    pg::MappingStatus* status() const { return status_; }
    MappingExpressions& expressions() { return expressions_; }
    ParamListInfo values() const { return values_; }
    BatchWork& work() { return work_; }

    // Parses the expressions if that was not done yet or the table has changed since, and begins an
    // evaluation. As the owner, inside a subtransaction: may raise.
    void begin();
    // After begin() in the same transaction.
    void end();
    // After an abort of the subtransaction around begin().
    void failed();

    // The table that begin() could not lock; empty: it could.
    const char* waits_for() const { return waits_for_; }

    // The current row type, set by begin().
    TupleDesc columns() const { return columns_; }

   private:
    void refresh();
    Calls calls() const;

    MappingDefinition definition_;
    XLogRecPtr since_;
    pg::MappingStatus* status_;
    MappingExpressions expressions_{};
    ParamListInfo values_ = nullptr;
    std::vector<const char*> known_calls_;  // as in definition_
    TupleDesc columns_ = nullptr;           // in TopMemoryContext
    bool prepared_ = false;
    char waits_for_[NAMEDATALEN] = "";
    BatchWork work_;
};

}  // namespace pgmqtt::cdc
