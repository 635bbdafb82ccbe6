#include "loadtest/test_table.h"

#include <algorithm>

#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {
namespace {

bool is_plain(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

}  // namespace

TestTable::TestTable(Postgres& postgres, const std::string& name, const std::string& columns)
    : postgres_(postgres), name_(name) {
    if (!is_plain(name))
        throw LoadError("--table " + name + ": give a name of lower case letters, digits and _");
    remove();
    postgres_.query("CREATE TABLE " + name_ + " (" + columns + ")");
}

TestTable::~TestTable() {
    try {
        remove();
    } catch (const LoadError&) {
        // The server is gone; the next run removes it.
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
