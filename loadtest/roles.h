// Clients with a part to play: publishers number and stamp, subscribers check.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/client.h"
#include "loadtest/meter.h"
#include "loadtest/options.h"
#include "loadtest/payload.h"
#include "loadtest/stream_tracker.h"

namespace pgmqtt::loadtest {

// What connected, broke and was refused, by one thread.
struct Attendance {
    uint64_t ready = 0;                // connected, and subscribed where that is wanted
    uint64_t gone = 0;                 // never came, or broke
    std::vector<std::string> reasons;  // the first few

    void note(const std::string& who, std::string_view why);
};

ClientOptions client_options(const Options& options, const std::string& id);
std::string client_id(const Options& options, const char* role, uint64_t number);
// PREFIX/RUN/PUBLISHER, or PREFIX/RUN/PUBLISHER/TOPIC when a publisher has several.
std::string topic_of(const Options& options, uint32_t publisher, uint32_t topic);
std::string filter_of(const Options& options, std::optional<uint32_t> publisher);

class Publisher final : ClientEvents {
   public:
    // `receivers`: how many subscribers get each message. `ready`: put here when credit came back.
    Publisher(const Options& options, uint32_t number, uint32_t receivers, EventLoop& loop,
              Meter& meter, Attendance& attendance, std::vector<Publisher*>& ready);

    void connect() { client_->connect(); }
    void disconnect();
    bool is_open() const { return open_; }

    // Sends what the windows allow.
    void fill(Nanos now, const Options& options);
    // One message, windows or not; false if the client's own limit was reached.
    bool publish(Nanos scheduled);
    // It sends so many and no more.
    void stop_at(uint64_t messages) { limit_ = messages; }
    void delivered() {
        ++delivered_;
        became_ready();
    }

    uint32_t number() const { return number_; }
    const std::vector<std::string>& topics() const { return topics_; }
    uint64_t sent() const { return sent_; }
    uint64_t expected() const { return sent_ * receivers_; }
    uint64_t receivers() const { return receivers_; }
    bool is_settled() const {
        return delivered_ >= expected() && (qos_ == 0 || acknowledged_ + refused_ >= sent_);
    }
    bool all_answered() const { return qos_ == 0 || acknowledged_ + refused_ >= sent_; }

   private:
    void on_connected(Client&, std::string_view refusal) override;
    void on_subscribed(Client&, bool) override {}
    void on_acknowledged(Client&, uint64_t token, bool accepted, Nanos at) override;
    void on_drained(Client&) override { became_ready(); }
    void on_closed(Client&, std::string_view why) override;

    uint64_t credit(const Options& options) const;
    void became_ready() {
        if (is_ready_) return;
        is_ready_ = true;
        ready_.push_back(this);
    }

    uint32_t number_;
    uint32_t receivers_;
    uint8_t qos_;
    bool retain_;
    bool json_;
    uint32_t run_;
    Meter& meter_;
    Attendance& attendance_;
    std::vector<Publisher*>& ready_;
    bool is_ready_ = false;
    bool open_ = false;
    std::vector<std::string> topics_;
    size_t next_topic_ = 0;
    Payload payload_;
    uint64_t limit_ = UINT64_MAX;
    uint64_t sent_ = 0;
    uint64_t acknowledged_ = 0;
    uint64_t refused_ = 0;
    uint64_t delivered_ = 0;
    std::unique_ptr<Client> client_;
};

// Publishers first .. first + count - 1.
struct Streams {
    uint32_t first = 0;
    uint32_t count = 1;
};

using ReadStamp = std::optional<Stamp> (*)(base::ByteView);

class Subscriber final : ClientEvents {
   public:
    // Expects messages of `streams` only; `on_first` is called for each one that this subscriber
    // had not had before, with its publisher.
    Subscriber(const Options& options, const ClientOptions& client, uint32_t number,
               std::vector<std::string> filters, Streams streams, EventLoop& loop, Meter& meter,
               Attendance& attendance, ReadStamp read = read_stamp);

    void connect() { client_->connect(); }
    // The session is there already: no SUBSCRIBE.
    void come_back();
    void disconnect();
    bool is_open() const { return open_; }

    std::function<void(uint32_t)> on_first;

    // Adds what never came of a publisher (that it hears) that had sent so many.
    void count_lost(uint32_t publisher, uint64_t sent);
    uint32_t number() const { return number_; }
    bool hears(uint32_t publisher) const { return publisher - first_stream_ < streams_.size(); }
    uint64_t first_arrivals() const { return first_arrivals_; }
    bool gave_up() const;

   private:
    void on_connected(Client&, std::string_view refusal) override;
    void on_subscribed(Client&, bool granted) override;
    void on_delivery(Client&, const Delivery& delivery) override;
    void on_closed(Client&, std::string_view why) override;

    std::string name() const { return "subscriber " + std::to_string(number_); }

    uint32_t run_;
    uint32_t number_;
    uint8_t qos_;
    bool subscribes_ = true;
    bool open_ = false;
    std::vector<std::string> filters_;
    uint32_t first_stream_;
    std::vector<StreamTracker> streams_;
    uint64_t first_arrivals_ = 0;
    Meter& meter_;
    Attendance& attendance_;
    ReadStamp read_;
    std::unique_ptr<Client> client_;
};

}  // namespace pgmqtt::loadtest
