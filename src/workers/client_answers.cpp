#include "workers/client_answers.h"

#include "broker/client_record.h"

namespace pgmqtt::workers {

namespace {

// Further ones wait to be taken up.
constexpr size_t kMaxAnswers = 64;
// Of one answer in one turn, even if the backend reads as fast: others have work for us, too.
constexpr int kRecordsPerTurn = 1000;

}  // namespace

void ClientAnswers::turn(const broker::Broker& broker, base::Now now) {
    can_go_on_ = false;
    while (answers_.size() < kMaxAnswers) {
        auto inquiry = pg::Inquiry::next();
        if (inquiry == nullptr) break;
        answers_.push_back({.inquiry = std::move(inquiry)});
    }
    std::erase_if(answers_, [&](Answer& answer) { return !go_on(answer, broker, now); });
}

bool ClientAnswers::go_on(Answer& answer, const broker::Broker& broker, base::Now now) {
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

}  // namespace pgmqtt::workers
