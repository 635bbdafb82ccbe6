#include "broker/load_averages.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pgmqtt::broker {

LoadAverages::Counts LoadAverages::counts(const Counters& counters) {
    Counts now{};
    now[kMessagesReceived] = counters.packets_in;  // mosquitto's messages are packets
    now[kMessagesSent] = counters.packets_out;
    now[kPublishDropped] = dropped_messages(counters);
    now[kPublishReceived] = counters.publishes_in;
    now[kPublishSent] = counters.publishes_out;
    now[kBytesReceived] = counters.bytes_in;
    now[kBytesSent] = counters.bytes_out;
    now[kSockets] = counters.accepted;
    now[kConnections] = counters.connects + counters.connects_refused;
    return now;
}

void LoadAverages::sample(base::MonoTime now, const Counters& counters) {
    Counts current = counts(counters);
    Counts before = std::exchange(counted_, current);
    base::MonoTime since = std::exchange(last_, now);
    bool first = next_ == base::MonoTime{};
    next_ = now + kSample;
    if (first || now <= since) return;
    Counts happened{};
    for (size_t i = 0; i < kLoadCount; ++i) happened[i] = current[i] - before[i];
    auto elapsed = now - since;
    auto busy = std::min<base::MonoTime::duration>(elapsed, kSample);
    fold(happened, busy);
    if (elapsed > busy) fold({}, elapsed - busy);
}

void LoadAverages::fold(const Counts& happened, std::chrono::duration<double> elapsed) {
    constexpr double kMinute = 60;
    for (size_t window = 0; window < kWindows.size(); ++window) {
        double weight = std::exp(-elapsed / kWindows[window]);
        for (size_t i = 0; i < kLoadCount; ++i) {
            double rate = static_cast<double>(happened[i]) * kMinute / elapsed.count();
            double& average = averages_[i][window];
            average = rate + weight * (average - rate);
        }
    }
}

}  // namespace pgmqtt::broker
