// What is left in memory of a delivery that waits in the store.
#pragma once

#include <cstdint>

#include "broker/delivery.h"

namespace pgmqtt::broker {

struct StoredEntry {
    uint64_t message_id = 0;
    uint64_t sequence = 0;
    uint32_t bytes = 0;
    uint32_t expires = 0;  // FarClock; 0: never, or so late that only the message knows
    uint32_t share = 0;
    mqtt::Qos qos : 2 = mqtt::Qos::k1;
    mqtt::Qos published_qos : 2 = mqtt::Qos::k1;
    Durability durability : 2 = Durability::kDurable;
    bool retain : 1 = false;
    bool published_retain : 1 = false;
    bool may_be_sent : 1 = false;
    bool sent_is_stored : 1 = false;
    bool has_identifiers : 1 = false;  // Session::far_identifiers
    bool released : 1 = false;         // while loading: kReceivedByClient
};
static_assert(sizeof(StoredEntry) == 32);

// Deadlines in tenths of a second since the broker's start, rounded up: 13 years of them.
class FarClock {
   public:
    explicit FarClock(base::MonoTime start = {}) : start_(start) {}

    uint32_t put(base::MonoTime at) const {
        if (at == base::kNever) return 0;
        auto tenths = std::chrono::ceil<Tenths>(at - start_).count();
        if (tenths > UINT32_MAX) return 0;
        return static_cast<uint32_t>(tenths < 1 ? 1 : tenths);
    }
    base::MonoTime get(uint32_t tenths) const {
        if (tenths == 0) return base::kNever;
        return start_ + std::chrono::duration_cast<base::MonoTime::duration>(Tenths(tenths));
    }

   private:
    using Tenths = std::chrono::duration<int64_t, std::deci>;
    base::MonoTime start_;
};

}  // namespace pgmqtt::broker
