// How much happened per minute, averaged over the last 1, 5 and 15 minutes as mosquitto does it:
// the weight of a moment falls by e with each window. Costs a look at the clock per input: nothing
// runs while nothing happens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "broker/counters.h"

namespace pgmqtt::broker {

class LoadAverages {
   public:
    static constexpr std::chrono::seconds kSample{10};
    static constexpr std::array<std::chrono::seconds, 3> kWindows = {
        std::chrono::seconds(60), std::chrono::seconds(300), std::chrono::seconds(900)};

    // In the order of mosquitto's topics.
    enum Load : size_t {
        kMessagesReceived,
        kMessagesSent,
        kPublishDropped,
        kPublishReceived,
        kPublishSent,
        kBytesReceived,
        kBytesSent,
        kSockets,
        kConnections,
        kLoadCount
    };

    // To be asked before each input: what was counted until then happened within kSample of the
    // last sample, and nothing from there on. So an hour without input is an hour of zeros.
    bool due(base::MonoTime now) const { return now >= next_; }
    void sample(base::MonoTime now, const Counters& counters);

    // Per minute.
    double average(Load load, size_t window) const { return averages_[load][window]; }

   private:
    using Counts = std::array<uint64_t, kLoadCount>;

    static Counts counts(const Counters& counters);
    void fold(const Counts& happened, std::chrono::duration<double> elapsed);

    base::MonoTime next_{};  // the first sample is where counting starts
    base::MonoTime last_{};
    Counts counted_{};
    std::array<std::array<double, kWindows.size()>, kLoadCount> averages_{};
};

// Messages that somebody should have got.
inline uint64_t dropped_messages(const Counters& counters) {
    return counters.dropped_slow_qos0 + counters.dropped_queue_full + counters.dropped_too_large +
           counters.dropped_expired;
}

}  // namespace pgmqtt::broker
