#include "pg/failpoint.h"

extern "C" {
#include <storage/ipc.h>
}

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "pg/guard.h"
#include "pg/log.h"
#include "pg/shared.h"

namespace pgmqtt::pg {
namespace {

// In the order of the enum. test/crash/test_failpoints.py has each of them happen.
constexpr std::string_view kNames[] = {
    "store-load",     "store-write",      "store-commit",       "store-answer",
    "store-answered", "store-truncate",   "store-truncated",    "store-move",
    "store-moved",    "store-fetch",      "handover-read",      "handover-remove",
    "broker-load",    "broker-hand-over", "broker-handed-over", "broker-acknowledge",
    "sink-write",     "sink-commit",      "sink-answer",        "cdc-evaluate",
    "cdc-publish",    "cdc-confirm",
};
static_assert(std::size(kNames) == static_cast<size_t>(Failpoint::kNone));

enum class Action : int { kKill, kError, kExit };
constexpr std::string_view kActions[] = {"kill", "error", "exit"};

constexpr const char* kVariable = "PGMQTT_FAILPOINT";
constexpr const char* kMessage = "failpoint";

Action action = Action::kKill;
uint64_t wanted_hit = 1;

template <size_t N>
int position(const std::string_view (&names)[N], std::string_view name) {
    for (size_t i = 0; i < N; ++i)
        if (names[i] == name) return static_cast<int>(i);
    return -1;
}

bool read_hit(std::string_view text) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), wanted_hit);
    return error == std::errc() && end == text.data() + text.size() && wanted_hit > 0;
}

// name[:hit][:action]
bool read(std::string_view text) {
    std::string_view rest;
    auto next = [&rest] {
        size_t colon = rest.find(':');
        std::string_view item = rest.substr(0, colon);
        rest = colon == rest.npos ? std::string_view() : rest.substr(colon + 1);
        return item;
    };
    rest = text;
    int name = position(kNames, next());
    if (name < 0) return false;
    std::string_view item = next();
    if (!item.empty() && item.front() >= '0' && item.front() <= '9') {
        if (!read_hit(item)) return false;
        item = next();
    }
    int what = item.empty() ? 0 : position(kActions, item);
    if (what < 0 || !rest.empty()) return false;
    action = static_cast<Action>(what);
    internal::armed_failpoint = static_cast<Failpoint>(name);
    return true;
}

// Whether it is the hit that was asked for. Of all workers: one that ends and comes back does not
// fail again.
bool reached() {
    if (shared()->failpoint_hits.fetch_add(1) + 1 != wanted_hit) return false;
    std::string line = "pgmqtt failpoint \"";
    line += kNames[static_cast<size_t>(internal::armed_failpoint)];
    line += "\" is reached: ";
    line += kActions[static_cast<size_t>(action)];
    log(LOG, line);
    return true;
}

void end_process() {
    if (action == Action::kKill) kill(MyProcPid, SIGKILL);
    if (action == Action::kExit) proc_exit(1);
}

}  // namespace

namespace internal {

Failpoint armed_failpoint = Failpoint::kNone;

void reach_failpoint() {
    if (!reached()) return;
    end_process();
    throw Raised(make_error(ERRCODE_DISK_FULL, kMessage));
}

void reach_failpoint_in_guard() {
    if (!reached()) return;
    end_process();
    ereport(ERROR, (errcode(ERRCODE_DISK_FULL), errmsg_internal("%s", kMessage)));
}

}  // namespace internal

void arm_failpoint() {
    static bool armed_before = false;
    internal::armed_failpoint = Failpoint::kNone;
    const char* value = std::getenv(kVariable);
    if (std::exchange(armed_before, true) || value == nullptr || *value == '\0') return;
    if (!read(value))
        ereport(FATAL, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("environment variable %s does not name a failpoint: \"%s\"",
                               kVariable, value),
                        errhint("Unset it, or give name[:hit][:kill|error|exit] with a name out of "
                                "src/pg/failpoint.cpp.")));
    ereport(LOG, (errmsg("pgmqtt failpoint is armed: %s", value)));
}

}  // namespace pgmqtt::pg
