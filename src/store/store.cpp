#include "store/store.h"

#include <algorithm>
#include <utility>

#include "pg/log.h"
#include "pg/settings.h"
#include "pg/shared.h"
#include "pg/transaction.h"

namespace pgmqtt::store {

using broker::BatchKind;
using broker::BatchReader;

namespace {

// A failing write (disk full, lock, read only) is tried again after this, doubling.
constexpr std::chrono::milliseconds kFirstRetry{100};
constexpr std::chrono::milliseconds kLastRetry{10000};

}  // namespace

Store::Store() : link_(pg::Worker::kStore, pg::Worker::kStore) {}

void Store::turn() {
    if (link_.connect() && link_.epoch() != epoch_) reconnect();
    receive();
    link_.flush();
    if (due()) {
        pg::Status status = write();
        if (status)
            written();
        else
            failed(status.error());
    }
    fetch_outbox();
    link_.flush();
}

// A new broker sends again what the old one was not told about. What was received from the old one is
// written all the same: the new broker loads it, or overwrites it.
void Store::reconnect() {
    epoch_ = link_.epoch();
    last_number_ = 0;
    outbox_.forget();
    outbox_delivered_ = false;
    outbox_more_ = true;
}

void Store::receive() {
    base::ByteView bytes;
    while (link_.receive(bytes)) {
        BatchReader header(bytes);
        if (!header.ok()) continue;
        if (header.kind() == BatchKind::kPublishDone) {
            if (header.number() == publish_number_ && outbox_.under_way()) outbox_delivered_ = true;
            continue;
        }
        if (header.kind() != BatchKind::kStore) continue;
        batches_.emplace_back(bytes);
        BatchReader reader(batches_.back());
        broker::StoreRecord record;
        while (reader.next(record)) changes_.add(record);
        last_number_ = header.number();
    }
}

bool Store::due() const {
    if (batches_.empty() && !outbox_delivered_) return false;
    Clock::time_point now = Clock::now();
    // Idle: at once. Under load: at most one storing transaction per tick, since each burns an xid.
    return now >= retry_at_ && now >= last_write_ + std::chrono::milliseconds(pg::settings.tick);
}

pg::Status Store::write() {
    last_write_ = Clock::now();
    return pg::transaction({.activity = "pgmqtt: storing"}, [this] {
        retained_.apply(changes_);
        if (outbox_delivered_) outbox_.remove_fetched();
    });
}

void Store::written() {
    pg::Shared* shared = pg::shared();
    if (!batches_.empty()) {
        shared->store_batches.fetch_add(batches_.size(), std::memory_order_relaxed);
        if (last_number_ != 0)
            link_.send(broker::batch_done(BatchKind::kCompletion, last_number_));
        batches_.clear();
        changes_.clear();
    }
    if (std::exchange(outbox_delivered_, false)) outbox_.forget();
    if (retry_delay_.count() != 0) pg::log(LOG, "pgmqtt store can write again");
    retry_delay_ = {};
}

// Nothing is lost: the batches stay, the broker withholds the acknowledgements and pauses publishers
// when too much waits.
void Store::failed(const pg::Error& error) {
    if (retry_delay_.count() == 0) {
        pg::log(WARNING, "pgmqtt store could not write; acknowledgements are withheld until it can",
                error);
        retry_delay_ = kFirstRetry;
    } else {
        retry_delay_ = std::min(retry_delay_ * 2, kLastRetry);
    }
    retry_at_ = Clock::now() + retry_delay_;
}

bool Store::outbox_has_work() const {
    return outbox_more_ ||
           pg::shared()->outbox.load(std::memory_order_acquire) != outbox_seen_;
}

void Store::fetch_outbox() {
    if (!link_.connected() || outbox_.under_way() || !outbox_has_work()) return;
    if (Clock::now() < retry_at_) return;
    outbox_seen_ = pg::shared()->outbox.load(std::memory_order_acquire);
    publishes_.clear();
    pg::Status status = pg::transaction({.read_only = true, .activity = "pgmqtt: reading the outbox"},
                                        [this] { outbox_more_ = outbox_.fetch(publishes_); });
    if (!status) {
        outbox_.forget();
        outbox_more_ = true;
        failed(status.error());
        return;
    }
    if (!outbox_.under_way()) return;
    if (publishes_.empty())
        outbox_delivered_ = true;  // only lonely commit rows: nothing to wait for
    else
        link_.send(publishes_.finish(++publish_number_));
}

long Store::timeout_ms() const {
    Clock::time_point when = Clock::time_point::max();
    if (!batches_.empty() || outbox_delivered_)
        when = std::max(retry_at_, last_write_ + std::chrono::milliseconds(pg::settings.tick));
    else if (link_.connected() && !outbox_.under_way() && outbox_has_work())
        when = retry_at_;
    if (when == Clock::time_point::max()) return -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count();
    return std::max<long>(0, static_cast<long>(left));
}

}  // namespace pgmqtt::store
