// Rows of the queue's log: the input is a list of runs, each behind its length in one byte.
// Whatever they say, reading ends, and what was read is written and read again unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "broker/queue_log.h"

namespace {

using namespace pgmqtt::broker;

void require(bool holds) {
    if (!holds) std::abort();
}

bool same(const QueueEntry& a, const QueueEntry& b) {
    if (a.kind != b.kind || a.session_id != b.session_id || a.number != b.number ||
        a.message_id != b.message_id)
        return false;
    if (a.kind != QueueEntry::Kind::kDelivery) return true;
    return a.place == b.place && a.delivery.state == b.delivery.state &&
           a.delivery.sent == b.delivery.sent && a.delivery.qos == b.delivery.qos &&
           a.delivery.retain == b.delivery.retain && a.delivery.bytes == b.delivery.bytes &&
           a.delivery.expires_at == b.delivery.expires_at &&
           a.delivery.subscription_identifiers == b.delivery.subscription_identifiers;
}

void check_run(ByteView run) {
    std::vector<QueueEntry> entries;
    QueueWriter writer;
    QueueReader reader(run);
    QueueEntry entry;
    while (reader.next(entry)) {
        entries.push_back(entry);
        writer.add(entry);
    }
    QueueReader again(writer.bytes());
    for (const QueueEntry& wanted : entries) require(again.next(entry) && same(entry, wanted));
    require(!again.next(entry) && again.ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ByteView rest(reinterpret_cast<const char*>(data), size);
    QueueReplay replay;
    while (!rest.empty()) {
        size_t length = static_cast<uint8_t>(rest.front());
        ByteView run = rest.substr(1, length);
        check_run(run);
        replay.add(run);
        rest.remove_prefix(1 + run.size());
    }
    uint64_t left = 0;
    replay.for_each([&left](const QueueEntry&) { ++left; });
    require(left <= replay.added());
    return 0;
}
