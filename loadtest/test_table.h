// The table that sink and cdc work with: made for the run, gone after it.
#pragma once

#include <string>

#include "loadtest/postgres.h"

namespace pgmqtt::loadtest {

class TestTable {
   public:
    // Drops what a run left that could not do so itself.
    TestTable(Postgres& postgres, const std::string& name, const std::string& columns);
    // What drop() was not called for, or could not, is tried once more; said on standard error.
    ~TestTable();
    TestTable(const TestTable&) = delete;
    TestTable& operator=(const TestTable&) = delete;

    // Through add_sink() or add_mapping(); removed before the table.
    void add_sink(const std::string& filter, const std::string& statement);
    void add_mapping(const std::string& topic, const std::string& payload, int qos);

    // With the sink or the mapping. Throws LoadError that says what is left.
    void drop();

    const std::string& name() const { return name_; }

   private:
    void remove();

    Postgres& postgres_;
    std::string name_;
    bool is_there_ = false;
};

}  // namespace pgmqtt::loadtest
