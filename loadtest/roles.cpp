#include "loadtest/roles.h"

#include <algorithm>

namespace pgmqtt::loadtest {
namespace {

constexpr size_t kReasonsKept = 5;
// Written ahead of the socket by one publisher.
constexpr size_t kMaxBacklog = 1 << 20;

std::string hex(uint32_t value) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text(8, '0');
    for (size_t i = 0; i < 8; ++i) text[7 - i] = kDigits[value >> (4 * i) & 15];
    return text;
}

}  // namespace

void Attendance::note(const std::string& who, std::string_view why) {
    ++gone;
    if (reasons.size() < kReasonsKept) reasons.push_back(who + ": " + std::string(why));
}

std::string client_id(const Options& options, const char* role, uint64_t number) {
    return options.client_prefix + "-" + hex(options.run) + "-" + role + std::to_string(number);
}

std::string topic_of(const Options& options, uint32_t publisher, uint32_t topic) {
    std::string name =
        options.topic_prefix + "/" + hex(options.run) + "/" + std::to_string(publisher);
    return options.topics == 1 ? name : name + "/" + std::to_string(topic);
}

std::string filter_of(const Options& options, std::optional<uint32_t> publisher) {
    std::string run = options.topic_prefix + "/" + hex(options.run) + "/";
    std::string level = publisher ? std::to_string(*publisher) : "+";
    return run + level + (options.topics == 1 ? "" : "/+");
}

ClientOptions client_options(const Options& options, const std::string& id) {
    ClientOptions client;
    client.host = options.host;
    client.port = options.port;
    client.protocol = options.protocol;
    client.id = id;
    client.username = options.username;
    client.password = options.password;
    uint32_t window = options.rate > 0 ? options.max_inflight : options.acknowledgement_window();
    client.inflight = static_cast<uint16_t>(std::clamp<uint32_t>(window, 1, 65534));
    return client;
}

Publisher::Publisher(const Options& options, uint32_t number, uint32_t receivers, EventLoop& loop,
                     Meter& meter, Attendance& attendance, std::vector<Publisher*>& ready)
    : number_(number),
      receivers_(receivers),
      qos_(options.qos),
      retain_(options.retain),
      json_(options.mode == "sink"),
      run_(options.run),
      meter_(meter),
      attendance_(attendance),
      ready_(ready),
      payload_(options.payload_size) {
    for (uint32_t i = 0; i < options.topics; ++i) topics_.push_back(topic_of(options, number, i));
    client_ = new_client(options.client, loop,
                         client_options(options, client_id(options, "p", number)), *this);
}

void Publisher::disconnect() {
    open_ = false;
    client_->disconnect();
}

uint64_t Publisher::credit(const Options& options) const {
    uint64_t window = options.end_to_end_window();
    uint64_t credit = window;
    if (receivers_ != 0) {
        uint64_t under_way = expected() - std::min(delivered_, expected());
        credit = under_way >= window * receivers_
                     ? 0
                     : (window * receivers_ - under_way + receivers_ - 1) / receivers_;
    }
    if (qos_ != 0) {
        uint64_t unanswered = sent_ - acknowledged_ - refused_;
        uint64_t most = options.acknowledgement_window();
        credit = std::min(credit, most > unanswered ? most - unanswered : 0);
    }
    return std::min(credit, limit_ - sent_);
}

void Publisher::fill(Nanos now, const Options& options) {
    is_ready_ = false;
    if (!open_) return;
    for (uint64_t left = credit(options); left != 0; --left) {
        if (client_->backlog() >= kMaxBacklog) return;  // on_drained() calls again
        if (!publish(now)) return;
        ++meter_.counters.offered;
    }
    // Nothing answers QoS 0 without receivers: the socket alone sets the pace.
    if (receivers_ == 0 && qos_ == 0) became_ready();
}

bool Publisher::publish(Nanos scheduled) {
    Stamp stamp{.run = run_, .publisher = number_, .sequence = sent_, .scheduled = scheduled};
    base::ByteView payload = json_ ? payload_.stamp_json(stamp) : payload_.stamp(stamp);
    if (!open_ || !client_->publish(topics_[next_topic_], payload, qos_, retain_, scheduled))
        return false;
    if (++next_topic_ == topics_.size()) next_topic_ = 0;
    ++sent_;
    ++meter_.counters.sent;
    meter_.sent_bytes += payload.size();
    meter_.counters.expected += receivers_;
    return true;
}

void Publisher::on_connected(Client&, std::string_view refusal) {
    if (!refusal.empty()) {
        ++meter_.counters.failed;
        return attendance_.note("publisher " + std::to_string(number_), refusal);
    }
    open_ = true;
    ++attendance_.ready;
}

void Publisher::on_acknowledged(Client&, uint64_t token, bool accepted, Nanos at) {
    if (accepted) {
        ++acknowledged_;
        ++meter_.counters.acknowledged;
        meter_.record_acknowledge(token, at);
    } else {
        ++refused_;
        ++meter_.counters.failed;
    }
    became_ready();
}

void Publisher::on_closed(Client&, std::string_view why) {
    open_ = false;
    ++meter_.counters.failed;
    attendance_.note("publisher " + std::to_string(number_), why);
}

Subscriber::Subscriber(const Options& options, const ClientOptions& client, uint32_t number,
                       std::vector<std::string> filters, Streams streams, EventLoop& loop,
                       Meter& meter, Attendance& attendance, ReadStamp read)
    : run_(options.run),
      number_(number),
      qos_(options.qos),
      filters_(std::move(filters)),
      first_stream_(streams.first),
      streams_(streams.count),
      meter_(meter),
      attendance_(attendance),
      read_(read) {
    client_ = new_client(options.client, loop, client, *this);
}

void Subscriber::come_back() {
    subscribes_ = false;
    client_->connect();
}

void Subscriber::disconnect() {
    open_ = false;
    client_->disconnect();
}

void Subscriber::on_connected(Client& client, std::string_view refusal) {
    if (!refusal.empty()) {
        ++meter_.counters.failed;
        return attendance_.note(name(), refusal);
    }
    open_ = true;
    if (subscribes_) return client.subscribe(filters_, qos_);
    ++attendance_.ready;
}

void Subscriber::on_subscribed(Client&, bool granted) {
    if (granted) {
        ++attendance_.ready;
        return;
    }
    ++meter_.counters.failed;
    attendance_.note(name(), "SUBSCRIBE was refused; see the broker's rights and limits");
}

void Subscriber::on_delivery(Client&, const Delivery& delivery) {
    std::optional<Stamp> stamp = read_(delivery.payload);
    uint32_t stream = stamp ? stamp->publisher - first_stream_ : 0;
    if (!stamp || (stamp->run == run_ && stream >= streams_.size())) {
        ++meter_.counters.corrupt;
        return;
    }
    if (stamp->run != run_) {
        ++meter_.foreign;
        return;
    }
    ++meter_.counters.received;
    meter_.received_bytes += delivery.payload.size();
    switch (streams_[stream].arrived(stamp->sequence)) {
        case Arrival::kDuplicate:
            ++meter_.counters.duplicated;
            return;
        case Arrival::kLate:
            ++meter_.counters.misordered;
            break;
        case Arrival::kInOrder:
            break;
    }
    ++first_arrivals_;
    meter_.record_end_to_end(stamp->scheduled, delivery.at);
    if (on_first) on_first(stamp->publisher);
}

void Subscriber::on_closed(Client&, std::string_view why) {
    open_ = false;
    ++meter_.counters.failed;
    attendance_.note(name(), why);
}

void Subscriber::count_lost(uint32_t publisher, uint64_t sent) {
    meter_.counters.lost += streams_[publisher - first_stream_].lost(sent);
}

bool Subscriber::gave_up() const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [](const StreamTracker& stream) { return stream.gave_up(); });
}

}  // namespace pgmqtt::loadtest
