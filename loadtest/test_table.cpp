#include "loadtest/test_table.h"

#include <algorithm>
#include <cstdio>

#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {
namespace {

bool is_plain(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

// How the next run knows that what is left of this one is nobody else's.
constexpr const char* kMark = "made by loadtest, which drops it";

}  // namespace

TestTable::TestTable(Postgres& postgres, const std::string& name, const std::string& columns)
    : postgres_(postgres), name_(name) {
    if (!is_plain(name))
        throw LoadError("--table " + name + ": give a name of lower case letters, digits and _");
    auto count = [&](const char* what) {
        return postgres_.value(std::string("SELECT count(*) FROM ") + what, {name_}) != "0";
    };
    bool is_ours =
        postgres_.value("SELECT obj_description(to_regclass($1), 'pg_class')", {name_}) == kMark;
    bool is_there = count("pg_class WHERE oid = to_regclass($1)") ||
                    count("pgmqtt.sinks WHERE name = $1") ||
                    count("pgmqtt.mappings WHERE name = $1");
    if (is_there && !is_ours)
        throw LoadError("there is a table, sink or mapping " + name +
                        " already, and it is not loadtest's; give --table another name");
    remove();
    is_there_ = true;
    postgres_.query("CREATE TABLE " + name_ + " (" + columns + ")");
    postgres_.query("COMMENT ON TABLE " + name_ + " IS '" + kMark + "'");
}

TestTable::~TestTable() {
    if (!is_there_) return;
    try {
        drop();
    } catch (const LoadError& error) {
        std::fprintf(stderr, "loadtest: %s\n", error.what());
    }
}

void TestTable::drop() {
    is_there_ = false;
    try {
        try {
            remove();
        } catch (const LoadError&) {
            // A server that fell and rose again still has it.
            postgres_.reconnect();
            remove();
        }
    } catch (const LoadError& error) {
        throw LoadError("table, sink or mapping " + name_ + " is left (" + error.what() +
                        "); the next run with this --table drops it");
    }
}

void TestTable::remove() {
    // The sink and the mapping have the table's name.
    if (postgres_.value("SELECT count(*) FROM pgmqtt.sinks WHERE name = $1", {name_}) != "0")
        postgres_.query("SELECT pgmqtt.drop_sink($1)", {name_});
    if (postgres_.value("SELECT count(*) FROM pgmqtt.mappings WHERE name = $1", {name_}) != "0")
        postgres_.query("SELECT pgmqtt.drop_mapping($1)", {name_});
    postgres_.query("DROP TABLE IF EXISTS " + name_);
}

void TestTable::add_sink(const std::string& filter, const std::string& statement) {
    postgres_.query("SELECT pgmqtt.add_sink($1, $2, $3)", {name_, filter, statement});
}

void TestTable::add_mapping(const std::string& topic, const std::string& payload, int qos) {
    postgres_.query(
        "SELECT pgmqtt.add_mapping($1::text, $1::text::regclass, $2, $3, operations => '{insert}', "
        "qos => $4)",
        {name_, topic, payload, std::to_string(qos)});
}

}  // namespace pgmqtt::loadtest
