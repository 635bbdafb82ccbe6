#include "loadtest/party.h"

#include <algorithm>

#include "loadtest/cleanup.h"
#include "loadtest/load_error.h"

namespace pgmqtt::loadtest {
namespace {

constexpr Nanos kPatience = 30 * kSecond;      // for a connect or a SUBACK
constexpr Nanos kShortPatience = 5 * kSecond;  // of somebody who asked for the end
constexpr Nanos kLinger = kSecond / 10;        // after the last message: duplicates come late
constexpr size_t kConnectsAtOnce = 100;
constexpr unsigned kPacedAtOnce = 10000;  // then the sockets get a turn

}  // namespace

void gather(EventLoop& loop, Attendance& attendance, size_t count, size_t concurrency,
            const std::function<void(size_t)>& connect, OnStop on_stop) {
    attendance.ready = 0;
    uint64_t gone_before = attendance.gone;
    size_t begun = 0;
    Nanos most = is_stopping() ? kShortPatience : kPatience;
    Patience patience(most, OnStop::kGoOn);
    while (attendance.ready < count) {
        if (on_stop == OnStop::kGiveUp && is_stopping()) throw Interrupted();
        while (begun < count && begun - attendance.ready < concurrency) connect(begun++);
        loop.turn(monotonic_now() + kSecond / 10);
        if (attendance.gone != gone_before)
            throw LoadError(attendance.reasons.empty() ? "a client broke"
                                                       : attendance.reasons.back());
        if (!patience.lasts(attendance.ready))
            throw LoadError("no CONNACK or SUBACK for " + std::to_string(most / kSecond) +
                            " s, with " + std::to_string(attendance.ready) + " of " +
                            std::to_string(count) + " clients there; look at the broker's log");
    }
}

Party::Party(const Options& options, uint32_t index)
    : options_(options), index_(index), paced_(options.rate > 0) {
    uint32_t threads = options.threads;
    uint32_t receivers = options.topology == Topology::kNone ? 0
                         : options.topology == Topology::kAll
                             ? options.subscribers
                             : options.subscribers / options.publishers;
    for (uint32_t i = index; i < options.publishers; i += threads)
        publishers_.push_back(
            std::make_unique<Publisher>(options, i, receivers, loop_, meter, attendance, ready_));
    if (options.topology == Topology::kNone) return;
    for (uint32_t i = 0; i < options.subscribers; ++i) {
        bool pairs = options.topology == Topology::kPairs;
        uint32_t heard = i % options.publishers;
        if (pairs && heard % threads != index) continue;
        ClientOptions client = client_options(options, client_id(options, "s", i));
        client.clean = !options.persistent;
        if (options.persistent) client.session_expiry = 3600;
        Streams streams = pairs ? Streams{heard, 1} : Streams{0, options.publishers};
        auto filter = filter_of(options, pairs ? std::optional(heard) : std::nullopt);
        subscribers_.push_back(std::make_unique<Subscriber>(options, client, i,
                                                            std::vector<std::string>{filter},
                                                            streams, loop_, meter, attendance));
        subscribers_.back()->on_first = [this, threads](uint32_t publisher) {
            ++first_arrivals_;
            publishers_[publisher / threads]->delivered();
        };
    }
}

void Party::gather_subscribers() {
    gather(loop_, attendance, subscribers_.size(), kConnectsAtOnce,
           [this](size_t i) { subscribers_[i]->connect(); });
}

void Party::gather_publishers() {
    gather(loop_, attendance, publishers_.size(), kConnectsAtOnce,
           [this](size_t i) { publishers_[i]->connect(); });
}

bool Party::anybody_left() const {
    auto is_open = [](const auto& client) { return client->is_open(); };
    return std::any_of(publishers_.begin(), publishers_.end(), is_open) &&
           (subscribers_.empty() || std::any_of(subscribers_.begin(), subscribers_.end(), is_open));
}

bool Party::is_settled() const {
    return std::all_of(publishers_.begin(), publishers_.end(),
                       [](const auto& publisher) { return publisher->is_settled(); });
}

uint64_t Party::in_flight() const {
    const Counters& c = meter.counters;
    uint64_t unanswered = options_.qos == 0 ? 0 : c.sent - c.acknowledged;
    uint64_t receivers = publishers_.front()->receivers();
    uint64_t undelivered = receivers == 0 ? 0 : (c.expected - first_arrivals_) / receivers;
    return std::max(unanswered, undelivered);
}

// What is due goes out, or is shed; nothing here waits.
void Party::pace() {
    Nanos now = monotonic_now();
    for (unsigned i = 0; i < kPacedAtOnce && pacer_->is_due(now); ++i) {
        Nanos scheduled = pacer_->take();
        ++meter.counters.offered;
        Publisher& publisher = *publishers_[next_publisher_];
        if (++next_publisher_ == publishers_.size()) next_publisher_ = 0;
        if (in_flight() >= options_.max_inflight / options_.threads ||
            !publisher.publish(scheduled))
            ++meter.counters.shed;
    }
}

void Party::turn(Nanos deadline) {
    if (paced_) {
        pace();
        deadline = std::min(deadline, pacer_->next());
    } else {
        Nanos now = monotonic_now();
        filling_.swap(ready_);
        for (Publisher* publisher : filling_) publisher->fill(now, options_);
        filling_.clear();
        if (!ready_.empty()) deadline = now;
    }
    loop_.turn(deadline);
}

bool Party::run(Nanos begin, Nanos end, const std::function<void(Nanos)>& at_second) {
    if (publishers_.empty()) return true;
    if (paced_ && !pacer_) pacer_.emplace(begin, options_.rate / options_.threads);
    Nanos now = monotonic_now();
    for (auto& publisher : publishers_)
        if (!paced_ && publisher->sent() == 0) publisher->fill(now, options_);
    Nanos second = begin + kSecond;
    while (now < end && !is_stopping()) {
        turn(std::min(second, end));
        now = monotonic_now();
        while (second <= now && second < end) {
            at_second(second);
            second += kSecond;
        }
        if (attendance.gone != 0 && !anybody_left()) break;
    }
    at_second(now);
    return anybody_left();
}

void Party::drain() {
    Patience patience(from_seconds(options_.drain));
    ready_.clear();
    while (!is_settled() && anybody_left() &&
           patience.lasts(meter.counters.received + meter.counters.acknowledged))
        loop_.turn(monotonic_now() + kSecond / 10);
    for (Nanos end = monotonic_now() + kLinger; monotonic_now() < end;) loop_.turn(end);
}

void Party::count_lost() {
    for (const auto& subscriber : subscribers_)
        for (const auto& publisher : publishers_)
            if (subscriber->hears(publisher->number()))
                subscriber->count_lost(publisher->number(), publisher->sent());
}

void Party::leave() {
    for (auto& publisher : publishers_) publisher->disconnect();
    for (auto& subscriber : subscribers_) subscriber->disconnect();
    std::vector<std::string> ids;
    for (const auto& subscriber : subscribers_)
        ids.push_back(client_id(options_, "s", subscriber->number()));
    if (options_.persistent) forget_sessions(options_, loop_, ids);
    if (!options_.retain) return;
    for (const auto& publisher : publishers_)
        clear_retained(options_, client_id(options_, "p", publisher->number()), loop_,
                       publisher->topics());
}

}  // namespace pgmqtt::loadtest
