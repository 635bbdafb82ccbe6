#include "pg/hops.h"

extern "C" {
#include <access/xlog.h>
#include <replication/message.h>
}

#include <algorithm>
#include <cstring>

#include "pg/shared.h"

namespace pgmqtt::pg {
namespace {

constexpr const char* kPrefix = "pgmqtt.hops";

int hops = 0;

}  // namespace

int current_hops() {
    return hops;
}

HopScope::HopScope(int count) {
    hops = count;
}

HopScope::~HopScope() {
    hops = 0;
}

void mark_transaction_with_hops() {
    if (hops == 0 || !XLogLogicalInfoActive() || shared()->watched.count.load() == 0) return;
    char content = static_cast<char>(hops);
#if PG_VERSION_NUM >= 170000
    LogLogicalMessage(kPrefix, &content, sizeof content, true, false);
#else
    LogLogicalMessage(kPrefix, &content, sizeof content, true);
#endif
}

// Anybody may write logical messages: who says this much of his own transaction shortens its way.
int hops_in_logical_message(const char* prefix, size_t size, const char* content) {
    if (size != 1 || std::strcmp(prefix, kPrefix) != 0) return 0;
    return std::clamp<int>(content[0], 0, kMaxHops);
}

}  // namespace pgmqtt::pg
