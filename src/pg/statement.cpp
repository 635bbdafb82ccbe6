#include "pg/statement.h"

namespace pgmqtt::pg {

Statement::Statement(const char* sql, std::initializer_list<Oid> parameter_types)
    : sql_(sql), parameter_types_(parameter_types) {}

Statement::~Statement() {
    if (plan_ == nullptr) return;
    SPIPlanPtr plan = plan_;
    // Nobody could do anything about an error here, and a destructor must not throw.
    try {
        (void)guard([plan] { SPI_freeplan(plan); });
    } catch (...) {
    }
}

uint64 Statement::execute(const Datum* values, const char* nulls, bool read_only, long limit) {
    if (plan_ == nullptr) {
        SPIPlanPtr plan =
            SPI_prepare(sql_, static_cast<int>(parameter_types_.size()), parameter_types_.data());
        if (plan == nullptr)
            elog(ERROR, "could not prepare \"%s\": %s", sql_, SPI_result_code_string(SPI_result));
        SPI_keepplan(plan);
        plan_ = plan;
    }
    int result = SPI_execute_plan(plan_, const_cast<Datum*>(values), nulls, read_only, limit);
    if (result < 0) elog(ERROR, "could not run \"%s\": %s", sql_, SPI_result_code_string(result));
    return SPI_processed;
}

}  // namespace pgmqtt::pg
