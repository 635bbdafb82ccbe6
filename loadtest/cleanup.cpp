#include "loadtest/cleanup.h"

#include "loadtest/guest.h"
#include "loadtest/load_error.h"
#include "loadtest/party.h"
#include "loadtest/sender.h"

namespace pgmqtt::loadtest {
namespace {

constexpr size_t kAtOnce = 100;
constexpr Nanos kPatience = 30 * kSecond;
constexpr Nanos kShortPatience = 5 * kSecond;  // of somebody who asked for the end

}  // namespace

void forget_sessions(const Options& options, EventLoop& loop, const std::vector<std::string>& ids) {
    Meter meter;
    Attendance attendance;
    std::vector<std::unique_ptr<Guest>> guests;
    for (const std::string& id : ids)
        guests.push_back(std::make_unique<Guest>(options.client, client_options(options, id),
                                                 std::vector<std::string>{}, uint8_t{0}, loop,
                                                 meter, attendance));
    gather(
        loop, attendance, guests.size(), kAtOnce, [&](size_t i) { guests[i]->connect(); },
        OnStop::kGoOn);
    for (auto& guest : guests) guest->disconnect();
}

void clear_retained(const Options& options, const std::string& id, EventLoop& loop,
                    const std::vector<std::string>& topics) {
    Options acknowledged = options;
    acknowledged.qos = 1;
    Meter meter;
    Attendance attendance;
    Sender sender(acknowledged, id, true, loop, meter, attendance);
    gather(
        loop, attendance, 1, 1, [&](size_t) { sender.connect(); }, OnStop::kGoOn);
    bool all = sender.send_all(loop, topics.size(),
                               Patience(is_stopping() ? kShortPatience : kPatience, OnStop::kGoOn),
                               [&](uint64_t i, Nanos) {
                                   return Sender::Message{topics[i], {}};
                               });
    if (!all)
        throw LoadError("retained messages of topics like " + topics.front() + " are left" +
                        (attendance.reasons.empty() ? "" : ": " + attendance.reasons.back()));
    sender.disconnect();
}

}  // namespace pgmqtt::loadtest
