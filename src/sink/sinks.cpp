#include "sink/sinks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pg/failpoint.h"
#include "pg/log.h"
#include "pg/shared.h"
#include "pg/transaction.h"
#include "sink/sink_transaction.h"

namespace pgmqtt::sink {
namespace {

// Messages that are held here. The broker pauses publishers long before; beyond this, what it sends
// stays in the queue between us.
constexpr size_t kMaxPendingBytes = 64 << 20;

constexpr std::chrono::seconds kReloadDelay{1};

}  // namespace

Sinks::Sinks() : link_(pg::Worker::kSink, pg::Worker::kSink) {
    for (pg::SinkSlot& slot : pg::shared()->sinks) slot.clear(0);
}

Sinks::~Sinks() {
    for (pg::SinkSlot& slot : pg::shared()->sinks) slot.clear(0);
}

void Sinks::turn() {
    reconnect();
    if (configuration_moved()) reload();
    if (!loaded_) return;
    receive();
    run_due();
    link_.flush();
    identities_.keys.clean_up();
}

long Sinks::timeout_ms() const {
    Clock::time_point next = Clock::time_point::max();
    if (configuration_moved()) next = reload_at_;
    for (const auto& [id, sink] : sinks_)
        if (!sink->idle() && may_run(*sink)) next = std::min(next, sink->retry_at());
    if (unread_ && completions_.pending_bytes() < kMaxPendingBytes) return 0;
    if (next == Clock::time_point::max()) return -1;
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return std::max<long>(0, static_cast<long>(wait.count()));
}

void Sinks::reconnect() {
    link_.connect();
    if (link_.epoch() == epoch_) return;
    epoch_ = link_.epoch();
    completions_.forget();
    for (auto& [id, sink] : sinks_) sink->forget_messages();
}

bool Sinks::configuration_moved() const {
    return !loaded_ || pg::shared()->configuration != configuration_;
}

void Sinks::reload() {
    if (Clock::now() < reload_at_) return;
    uint64_t seen = pg::shared()->configuration;
    std::vector<Definition> definitions;
    pg::Status status = pg::transaction({.read_only = true}, [&] {
        limit_lock_waits(LockPatience::kLongest);
        read_definitions(definitions);
    });
    if (!status) {
        if (!reload_failed_) pg::log(WARNING, "could not read pgmqtt.sink", status.error());
        reload_failed_ = true;
        reload_at_ = Clock::now() + kReloadDelay;
        return;
    }
    reload_failed_ = false;
    reload_at_ = {};
    apply(std::move(definitions));
    loaded_ = true;
    configuration_ = seen;
    pg::shared()->sink_configuration = seen;
}

void Sinks::apply(std::vector<Definition> definitions) {
    std::unordered_map<uint32_t, std::unique_ptr<Sink>> before = std::move(sinks_);
    sinks_.clear();
    for (pg::SinkSlot& slot : pg::shared()->sinks) {
        auto same = [&](const Definition& definition) { return definition.id == slot.sink_id; };
        if (std::none_of(definitions.begin(), definitions.end(), same)) slot.clear(0);
    }
    for (Definition& definition : definitions) {
        uint32_t id = definition.id;
        auto known = before.find(id);
        if (known == before.end()) {
            sinks_[id] = std::make_unique<Sink>(std::move(definition), take_slot(id));
            continue;
        }
        if (known->second->slot() == nullptr) known->second->use_slot(take_slot(id));
        known->second->redefine(std::move(definition));
        sinks_[id] = std::move(known->second);
        before.erase(known);
    }
    for (auto& [id, sink] : before) {
        sink->retire();
        sinks_[id] = std::move(sink);
    }
    drop_retired();
}

// A dropped sink is remembered for its name while messages may be under way to it: until the
// configuration changes again after its queue ran empty.
void Sinks::drop_retired() {
    std::erase_if(sinks_, [](const auto& entry) {
        return entry.second->retired() && entry.second->idle() && entry.second->outlived();
    });
}

pg::SinkSlot* Sinks::take_slot(uint32_t sink_id) {
    for (pg::SinkSlot& slot : pg::shared()->sinks) {
        if (slot.sink_id != 0) continue;
        slot.clear(sink_id);
        return &slot;
    }
    return nullptr;
}

void Sinks::receive() {
    base::ByteView bytes;
    while (true) {
        unread_ = completions_.pending_bytes() >= kMaxPendingBytes;
        if (unread_ || !link_.receive(bytes)) return;
        broker::BatchReader batch(bytes);
        broker::SinkRecord record;
        while (batch.next(record)) accept(record);
        if (!batch.ok()) pg::log(WARNING, "the broker sent a batch that cannot be read");
    }
}

void Sinks::accept(const broker::SinkRecord& record) {
    std::shared_ptr<Message> message = make_message(record);
    completions_.expect(*message, record.sink_ids.size());
    for (uint32_t id : record.sink_ids) sink_of(id).enqueue(message);
}

// The broker may know of a sink before we do, and of one that is gone for longer than we do.
Sink& Sinks::sink_of(uint32_t id) {
    if (!sinks_.contains(id) && configuration_moved()) reload();
    auto& sink = sinks_[id];
    if (sink == nullptr) {
        Definition unknown;
        unknown.id = id;
        unknown.name = "#" + std::to_string(id);
        sink = std::make_unique<Sink>(std::move(unknown), nullptr);
        sink->retire();
    }
    return *sink;
}

// A sink that we do not know may only be too new: it is refused what came for it when the
// configuration has been read.
bool Sinks::may_run(const Sink& sink) const {
    return !sink.retired() || !configuration_moved();
}

void Sinks::run_due() {
    Clock::time_point now = Clock::now();
    for (auto& [id, sink] : sinks_) {
        if (!sink->due(now) || !may_run(*sink)) continue;
        sink->run(dead_letters_, identities_, patience_, completions_);
        send_completions();
    }
}

void Sinks::send_completions() {
    if (completions_.empty()) return;
    pg::failpoint(pg::Failpoint::kSinkAnswer);
    link_.send(completions_.batch());
    completions_.clear();
}

}  // namespace pgmqtt::sink
