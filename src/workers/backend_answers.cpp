#include "workers/backend_answers.h"

#include <algorithm>

#include "base/bytes.h"
#include "broker/client_record.h"

namespace pgmqtt::workers {

namespace {

// Further ones wait to be taken up.
constexpr size_t kMaxAnswers = 64;
// Of one answer in one turn, even if the backend reads as fast: others have work for us, too.
constexpr int kRecordsPerTurn = 1000;
// So that who waits for the end of something long knows that we are at it.
constexpr std::chrono::seconds kTellEvery{1};

}  // namespace

void BackendAnswers::turn(broker::Broker& broker, base::Now now) {
    can_go_on_ = false;
    while (answers_.size() < kMaxAnswers) {
        auto inquiry = pg::Inquiry::next();
        if (inquiry == nullptr) break;
        Answer answer{.inquiry = std::move(inquiry), .clearing = nullptr, .told_at = now.mono};
        if (!answer.inquiry->filter().empty())
            answer.clearing = broker.begin_clearing(answer.inquiry->filter());
        answers_.push_back(std::move(answer));
    }
    std::erase_if(answers_, [&](Answer& answer) { return !go_on(answer, broker, now); });
}

base::MonoTime BackendAnswers::next() const {
    base::MonoTime next = base::kNever;
    for (const Answer& answer : answers_) {
        if (answer.clearing && !answer.finished && !answer.inquiry->gone())
            next = std::min(next, answer.told_at + kTellEvery);
    }
    return next;
}

bool BackendAnswers::go_on(Answer& answer, broker::Broker& broker, base::Now now) {
    return answer.clearing ? clear(answer, broker, now) : tell_clients(answer, broker, now);
}

bool BackendAnswers::tell_clients(Answer& answer, const broker::Broker& broker, base::Now now) {
    pg::Inquiry& inquiry = *answer.inquiry;
    broker::ClientRecord client;
    for (int i = 0; i < kRecordsPerTurn; ++i) {
        if (!inquiry.flush()) return true;
        if (inquiry.gone() || answer.finished) return false;
        if (broker.describe_client(answer.slot, client, now)) {
            bytes_.clear();
            encode(client, bytes_);
            inquiry.send(bytes_);
        } else {
            answer.finished = true;
            inquiry.finish();
        }
    }
    can_go_on_ = true;
    return true;
}

// What is begun is cleared to its end, whoever still waits for it: half of it is no state that
// anybody asked for.
bool BackendAnswers::clear(Answer& answer, broker::Broker& broker, base::Now now) {
    pg::Inquiry& inquiry = *answer.inquiry;
    bool heard = inquiry.flush();
    if (answer.finished) return !heard;
    uint64_t before = answer.clearing->cleared;
    bool done = broker.clear_some(*answer.clearing, now);
    // What was cleared is to be carried out, and what is left goes on unless it has to wait.
    can_go_on_ |= answer.clearing->cleared != before ||
                  (!answer.clearing->cursor.done() && broker.takes_publishes());
    if (done && inquiry.gone()) return false;
    if (!done && now.mono < answer.told_at + kTellEvery) return true;
    answer.told_at = now.mono;
    if (!heard) return true;
    bytes_.clear();
    base::put_u64(bytes_, answer.clearing->cleared);
    inquiry.send(bytes_);
    if (!done || !inquiry.flush()) return true;
    answer.finished = true;
    inquiry.finish();
    return !inquiry.flush();
}

}  // namespace pgmqtt::workers
