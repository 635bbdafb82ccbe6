#include "store/fetches.h"

#include <utility>

#include "pg/failpoint.h"
#include "pg/transaction.h"
#include "store/message_row.h"

namespace pgmqtt::store {
namespace {

// Of one answer; also what a broker that is slow to read may leave unread, times four.
constexpr size_t kAnswerBytes = 1 << 20;
constexpr size_t kUnreadBytes = 4 << 20;

}  // namespace

Fetches::Fetches() : answer_(broker::BatchKind::kFetched) {}

void Fetches::add(broker::BatchReader& batch) {
    Request request{.number = batch.number(), .records = {}};
    broker::FetchRecord record;
    while (batch.next(record)) request.records.push_back(record);
    if (!request.records.empty()) requests_.push_back(std::move(request));
}

pg::Status Fetches::answer(QueueLog& logged, QueueLog& unlogged, bool complete, pg::Link& link) {
    waiting_ = false;
    while (!requests_.empty() && !waiting_ && link.unsent_bytes() < kUnreadBytes) {
        Request& request = requests_.front();
        size_t first = request.next;
        answer_.clear();
        pg::Status status =
            pg::transaction({.read_only = true, .activity = "pgmqtt: reading messages"},
                            [&] { read(request, logged, unlogged, complete); });
        if (!status) {
            request.next = first;
            return status;
        }
        if (!answer_.empty()) link.send(answer_.finish(request.number));
        if (request.next == request.records.size()) requests_.pop_front();
    }
    return base::Done{};
}

// In a transaction; may raise.
void Fetches::read(Request& request, QueueLog& logged, QueueLog& unlogged, bool complete) {
    MessageReader logged_reader(logged.kind(), logged.index());
    MessageReader unlogged_reader(unlogged.kind(), unlogged.index());
    for (; request.next < request.records.size() && answer_.size() < kAnswerBytes; ++request.next) {
        const broker::FetchRecord& wanted = request.records[request.next];
        MessageReader& reader = logged.holds(wanted.durability) ? logged_reader : unlogged_reader;
        broker::FetchedRecord found{.message_id = wanted.message_id, .found = false, .message = {}};
        if (TupleTableSlot* row = reader.read(wanted.message_id)) {
            found.found = true;
            found.message = message_of_row(row);
        } else if (!complete) {
            waiting_ = true;
            break;
        }
        answer_.add(found);
    }
    logged_reader.close();
    unlogged_reader.close();
    pg::failpoint_in_guard(pg::Failpoint::kStoreFetch);
}

}  // namespace pgmqtt::store
