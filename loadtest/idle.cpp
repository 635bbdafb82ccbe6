// idle: what connections cost that do nothing.
#include <algorithm>

#include "loadtest/cpu_clock.h"
#include "loadtest/event_loop.h"
#include "loadtest/guest.h"
#include "loadtest/mode.h"
#include "loadtest/party.h"
#include "loadtest/window.h"

namespace pgmqtt::loadtest {

RunResult run_idle(const Options& options) {
    EventLoop loop;
    Meter meter;
    Attendance attendance;
    Window window(options);
    // What the first connections cost once is not theirs: buffers, tables.
    std::vector<std::unique_ptr<Guest>> guests;
    for (uint64_t i = 0; i < options.connections; ++i)
        guests.push_back(std::make_unique<Guest>(
            options.client, client_options(options, client_id(options, "i", i)),
            std::vector<std::string>{topic_of(options, static_cast<uint32_t>(i), 0)}, options.qos,
            loop, meter, attendance));
    auto memory = [&] {
        return options.broker_pid == 0 ? std::nullopt : process_memory(options.broker_pid);
    };
    std::optional<uint64_t> before = memory();
    Nanos began = monotonic_now();
    gather(loop, attendance, guests.size(), options.concurrency,
           [&](size_t i) { guests[i]->connect(); });
    double connecting = to_seconds(monotonic_now() - began);
    std::optional<uint64_t> after = memory();

    window.open();
    Nanos end = monotonic_now() + from_seconds(options.duration);
    while (monotonic_now() < end) loop.turn(end);
    window.close();

    RunResult result = new_result(options);
    result.warmup_seconds = 0;
    result.operation = "connection";
    result.operations = guests.size();
    result.measured_seconds = window.seconds();
    result.counters = meter.counters;
    result.errors = attendance.reasons;
    window.fill(result);
    judge(result, options);
    result.operations_per_second = static_cast<double>(guests.size()) / std::max(connecting, 1e-9);
    if (before && after) {
        double grown = static_cast<double>(*after) - static_cast<double>(*before);
        result.figures.push_back(
            {"memory_per_connection", grown / static_cast<double>(guests.size()), "bytes"});
        result.figures.push_back({"broker_memory", static_cast<double>(*after), "bytes"});
    } else {
        result.warnings.emplace_back(
            "no memory figures: give --broker-pid or --pg, and run as a user that may read "
            "/proc/PID");
    }
    for (auto& guest : guests) guest->disconnect();
    return result;
}

}  // namespace pgmqtt::loadtest
