// What it costs to find the subscriptions that match a topic, among a thousand and a million: the
// ones that do not match must not matter. Filters are mixed: exact, `+`, `#`, shared.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "broker/subscription_tree.h"

namespace {

using pgmqtt::broker::Subscription;
using pgmqtt::broker::SubscriptionTree;

// Of device number `i`. Half are exact; the others are wildcards below one device, or shared.
std::string filter(size_t i) {
    std::string device = "site/" + std::to_string(i % 1000) + "/device/" + std::to_string(i);
    switch (i % 8) {
        case 0:
            return device + "/+/value";
        case 1:
            return device + "/#";
        case 2:
            return "$share/workers/" + device + "/temperature";
        case 3:
            return "$share/workers/" + device + "/+/value";
        default:
            return device + "/temperature";
    }
}

size_t allocated() {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

struct Filled {
    explicit Filled(size_t count) {
        size_t before = allocated();
        tree = std::make_unique<SubscriptionTree>(1);
        for (size_t i = 0; i < count; ++i) {
            subscriptions.emplace_back();
            tree->add(filter(i), subscriptions.back());
        }
        bytes = allocated() - before;
        for (const char* each : {"site/+/device/+/temperature", "#", "site/#"}) {
            subscriptions.emplace_back();
            tree->add(each, subscriptions.back());
        }
    }

    std::unique_ptr<SubscriptionTree> tree;
    std::deque<Subscription> subscriptions;  // their addresses stay
    size_t bytes = 0;
};

Filled& filled(size_t count) {
    static std::unique_ptr<Filled> kept;
    static size_t kept_count = 0;
    if (kept_count != count) {
        kept.reset();
        kept = std::make_unique<Filled>(count);
        kept_count = count;
    }
    return *kept;
}

// Four or five subscriptions match each topic, whatever the count.
void match(benchmark::State& state) {
    auto count = static_cast<size_t>(state.range(0));
    Filled& all = filled(count);
    std::mt19937 random(1);
    std::vector<std::string> topics;
    for (int i = 0; i < 1024; ++i) {
        size_t device = random() % count;
        topics.push_back("site/" + std::to_string(device % 1000) + "/device/" +
                         std::to_string(device) + "/temperature");
    }
    std::vector<Subscription*> matches;
    size_t next = 0;
    size_t found = 0;
    for (auto _ : state) {
        matches.clear();
        all.tree->match(topics[next++ % topics.size()], matches);
        found += matches.size();
    }
    state.counters["matches"] =
        benchmark::Counter(static_cast<double>(found), benchmark::Counter::kAvgIterations);
    state.counters["bytes_per_subscription"] =
        static_cast<double>(all.bytes) / static_cast<double>(count);
}
BENCHMARK(match)->Arg(1000)->Arg(100000)->Arg(1000000);

// The same topic each time: what is left when nothing misses the processor's caches.
void match_hot(benchmark::State& state) {
    Filled& all = filled(static_cast<size_t>(state.range(0)));
    std::vector<Subscription*> matches;
    for (auto _ : state) {
        matches.clear();
        all.tree->match("site/5/device/5/temperature", matches);
        benchmark::DoNotOptimize(matches.data());
    }
}
BENCHMARK(match_hot)->Arg(1000)->Arg(100000)->Arg(1000000);

void subscribe_and_unsubscribe(benchmark::State& state) {
    auto count = static_cast<size_t>(state.range(0));
    Filled& all = filled(count);
    Subscription added;
    size_t i = count;
    for (auto _ : state) {
        all.tree->add(filter(i++), added);
        all.tree->remove(added);
    }
}
BENCHMARK(subscribe_and_unsubscribe)->Arg(1000)->Arg(100000)->Arg(1000000);

// One group of many members: joining and leaving must not look at the others.
void join_and_leave(benchmark::State& state) {
    SubscriptionTree tree(1);
    std::deque<Subscription> members(static_cast<size_t>(state.range(0)));
    for (Subscription& member : members) tree.add("$share/workers/jobs/#", member);
    Subscription added;
    for (auto _ : state) {
        tree.add("$share/workers/jobs/#", added);
        tree.remove(added);
    }
}
BENCHMARK(join_and_leave)->Arg(10)->Arg(100000);

}  // namespace

BENCHMARK_MAIN();
