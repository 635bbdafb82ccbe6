// The table that sink and cdc work with: made for the run, gone after it.
#pragma once

#include <string>

#include "loadtest/postgres.h"

namespace pgmqtt::loadtest {

class TestTable {
   public:
    // Drops what an interrupted run left.
    TestTable(Postgres& postgres, const std::string& name, const std::string& columns);
    ~TestTable();
    TestTable(const TestTable&) = delete;
    TestTable& operator=(const TestTable&) = delete;

    // Through add_sink() or add_mapping(); removed before the table.
    void add_sink(const std::string& filter, const std::string& statement);
    void add_mapping(const std::string& topic, const std::string& payload, int qos);

    const std::string& name() const { return name_; }

   private:
    void remove();

    Postgres& postgres_;
    std::string name_;
};

}  // namespace pgmqtt::loadtest
